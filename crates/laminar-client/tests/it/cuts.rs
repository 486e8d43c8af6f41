//! Consistent cuts: whole commits, within limits, nothing twice and nothing left out.

use std::collections::BTreeMap;

use laminar_client::{Alteration, Cut, CutOptions, End, ErrorClass, Field, ReadOptions, Start, StreamHandle};

use crate::support::{Place, create, drain, orders};

fn rows_max(rows_max: u64) -> CutOptions {
    CutOptions { rows_max: Some(rows_max), ..Default::default() }
}

async fn cut(stream: &StreamHandle, start: &BTreeMap<u32, u64>, options: CutOptions) -> Cut {
    stream.cut(start, options).await.unwrap()
}

/// The ids between two cuts, sorted.
async fn between(stream: &StreamHandle, start: &BTreeMap<u32, u64>, end: &BTreeMap<u32, u64>) -> Vec<i64> {
    let options = ReadOptions {
        start: Start::Offsets(start.clone()),
        end: End::Offsets(end.clone()),
        ..Default::default()
    };
    let mut ids = drain(stream.read(options).await.unwrap()).await;
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_without_limits_has_everything_that_was_acknowledged() {
    let place = Place::new().await;
    for stream in
        [create(&place.local, "/local", 4, "log").await, create(&place.remote(), "/remote", 4, "log").await]
    {
        let none = BTreeMap::new();
        let empty = cut(&stream, &none, CutOptions::default()).await;
        assert_eq!((empty.rows, empty.complete, empty.bytes), (0, true, None));
        assert_eq!(empty.ends, (0..4).map(|p| (p, 0)).collect());

        stream.append(&[orders(0..50)]).await.unwrap();
        let first = cut(&stream, &none, CutOptions::default()).await;
        let offsets = stream.offsets().await.unwrap();
        assert_eq!(first.ends, offsets.iter().map(|(p, range)| (*p, range.end)).collect());
        assert_eq!((first.rows, first.complete), (50, true));

        stream.append(&[orders(50..60)]).await.unwrap();
        let at = CutOptions { at: Some(first.global_index), ..Default::default() };
        assert_eq!(cut(&stream, &none, at).await.ends, first.ends, "the same cut again");
        let counted = CutOptions { bytes_max: Some(u64::MAX), ..Default::default() };
        let rest = cut(&stream, &first.ends, counted).await;
        assert_eq!((rest.rows, rest.complete), (10, true));
        assert!(rest.bytes.is_some_and(|bytes| bytes > 0));
        assert_eq!(between(&stream, &first.ends, &rest.ends).await, (50..60).collect::<Vec<_>>());
        let nothing = CutOptions { at: Some(0), ..Default::default() };
        assert_eq!(cut(&stream, &none, nothing).await.rows, 0);
    }
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_cuts_are_whole_commits_one_after_the_other() {
    let place = Place::new().await;
    let stream = create(&place.local, "/commits", 5, "log").await;
    // Of 7 rows each, and one that is larger than any limit.
    for commit in 0..30_i64 {
        let ids = if commit == 10 { 10_000..10_100 } else { commit * 7..commit * 7 + 7 };
        stream.append(&[orders(ids)]).await.unwrap();
    }
    let bytes = CutOptions { bytes_max: Some(1000), ..Default::default() };
    for (options, most) in [(rows_max(25), Some(21)), (rows_max(1), Some(7)), (bytes, None)] {
        let (mut start, mut seen) = (BTreeMap::new(), Vec::new());
        loop {
            let found = cut(&stream, &start, options).await;
            let ids = between(&stream, &start, &found.ends).await;
            assert_eq!(ids.len() as u64, found.rows);
            let large = ids.iter().filter(|id| **id >= 10_000).count();
            assert!([0, 100].contains(&large) && (ids.len() - large).is_multiple_of(7), "{ids:?}");
            if large == 0 {
                assert!(most.is_none_or(|most| ids.len() <= most), "{ids:?}");
            } else {
                assert_eq!(ids.len(), 100, "a commit beyond the limit comes alone");
            }
            assert!(found.bytes.is_none_or(|bytes| bytes <= 1000 || ids.len() <= 7 || large == 100));
            let at = CutOptions { at: Some(found.global_index), ..Default::default() };
            assert_eq!(cut(&stream, &start, at).await.ends, found.ends, "it is a cut at its index");
            seen.extend(ids);
            start = found.ends;
            if found.complete {
                break;
            }
        }
        seen.sort_unstable();
        let all = (0..210).filter(|id| !(70..77).contains(id)).chain(10_000..10_100);
        assert_eq!(seen, all.collect::<Vec<i64>>());
    }
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_behind_the_end_is_refused_and_one_below_retention_is_told() {
    let place = Place::new().await;
    let stream = create(&place.local, "/edges", 2, "log").await;
    stream.append(&[orders(0..40)]).await.unwrap();
    let ends = cut(&stream, &BTreeMap::new(), CutOptions::default()).await.ends;
    let beyond = BTreeMap::from([(1, ends[&1] + 1)]);
    let failure = stream.cut(&beyond, CutOptions::default()).await.unwrap_err();
    assert_eq!((failure.class, failure.number("partition")), (ErrorClass::Invalid, Some(1)), "{failure}");
    assert_eq!(failure.fields["end_offset"], Field::Unsigned(ends[&1]));
    assert!(failure.message.starts_with("/edges partition 1: cut refused"), "{failure}");
    let unknown = stream.cut(&BTreeMap::from([(2, 0)]), CutOptions::default()).await.unwrap_err();
    assert_eq!(unknown.class, ErrorClass::UnknownPartition);

    stream.trim(0, 5).await.unwrap();
    let trimmed = cut(&stream, &BTreeMap::new(), CutOptions::default()).await;
    assert_eq!((trimmed.starts[&0], trimmed.starts[&1], trimmed.rows), (5, 0, 35));
    assert_eq!(trimmed.ends, ends);
    // Everything is gone: nothing is left to read, and nobody is sent back.
    stream.trim(0, u64::MAX).await.unwrap();
    let early = CutOptions { at: Some(1), ..Default::default() };
    let gone = cut(&stream, &BTreeMap::new(), early).await;
    assert_eq!((gone.starts[&0], gone.ends[&0], gone.rows), (ends[&0], ends[&0], 0));
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_a_stream_gets_later_are_in_its_cuts() {
    let place = Place::new().await;
    let stream = create(&place.local, "/grows", 2, "log").await;
    stream.append(&[orders(0..10)]).await.unwrap();
    let other = place.remote();
    let alteration = Alteration { partitions: Some(6), ..Default::default() };
    let grown = other.stream("/grows").await.unwrap();
    other.alter(&grown, alteration).await.unwrap();
    grown.append(&[orders(10..100)]).await.unwrap();
    let found = cut(&stream, &BTreeMap::new(), CutOptions::default()).await;
    assert_eq!((found.ends.len(), found.rows), (6, 100));
    assert_eq!(between(&stream, &BTreeMap::new(), &found.ends).await.len(), 100);
    place.close().await;
}
