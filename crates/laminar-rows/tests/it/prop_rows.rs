//! What holds of all batches: splitting loses and reorders nothing, decoding gives what was encoded, and bytes of
//! anyone give an error at worst.

use std::collections::BTreeMap;

use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use laminar_rows::{
    RowsError, StreamSchema, check_row_bytes, decode, decode_bytes, decode_keys, decode_kv_payload,
    decode_kv_rows, encode, encode_bytes, encode_kv, encode_with_schema, hash_key, hashes, keys,
    partition_of, split,
};
use proptest::prelude::*;

use crate::common::{Rng, all_types, array, batch, stream};

fn config() -> ProptestConfig {
    // PROPTEST_CASES asks for more.
    let cases = ProptestConfig::default().cases.max(400);
    ProptestConfig { failure_persistence: None, cases, ..ProptestConfig::default() }
}

/// The bytes in memory that begin at an odd address, as parts of a larger message do.
fn shifted(payload: &Bytes, by: usize) -> Bytes {
    let mut moved = vec![0; by];
    moved.extend_from_slice(payload);
    Bytes::from(moved).slice(by..)
}

/// The payload with a few bytes changed, cut or added.
fn damaged(rng: &mut Rng, payload: &Bytes) -> Bytes {
    let mut bytes = payload.to_vec();
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len().max(1));
        match rng.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.push(rng.next() as u8),
            2 if at + 8 <= bytes.len() => {
                let extreme = [0, 1, u64::MAX, i64::MAX as u64, 1 << 40, 1 << 31][rng.below(6)];
                bytes[at..at + 8].copy_from_slice(&extreme.to_le_bytes());
            }
            // The head has the most to get wrong.
            3 if bytes.len() > 300 => bytes[8 + rng.next() as usize % 290] = rng.next() as u8,
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
    bytes.into()
}

/// What comes out of a decoder is used, so that it would panic here if it were not valid.
fn walk(result: Result<RecordBatch, RowsError>) {
    match result {
        Ok(batch) => {
            let _ = format!("{:?}", batch.slice(0, batch.num_rows().min(3)));
            let _ = check_row_bytes(&batch, 1);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn splitting_keeps_all_rows_and_their_order(seed: u64, rows in 0_usize..200, partitions in 1_u32..20) {
        let rng = &mut Rng(seed);
        let (schema, batch) = stream(rng, rows);
        let mut expected: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (row, hash) in hashes(&batch, &schema).unwrap().into_iter().enumerate() {
            expected.entry(partition_of(hash, partitions)).or_default().push(row);
        }
        let parts = split(&batch, &schema, partitions).unwrap();
        prop_assert_eq!(parts.len(), expected.len());
        for ((partition, part), (expected, rows)) in parts.iter().zip(&expected) {
            prop_assert_eq!(partition, expected);
            prop_assert_eq!(part.num_rows(), rows.len());
            for (place, row) in rows.iter().enumerate() {
                prop_assert_eq!(part.slice(place, 1), batch.slice(*row, 1));
            }
        }
    }

    #[test]
    fn decoding_gives_what_was_encoded(seed: u64, rows in 0_usize..300, shift in 0_usize..9) {
        let (schema, batch) = stream(&mut Rng(seed), rows);
        let payload = encode(&batch).unwrap();
        prop_assert_eq!(&decode(&payload, &schema).unwrap(), &batch);
        prop_assert_eq!(&decode(&shifted(&payload, shift), &schema).unwrap(), &batch);
        prop_assert_eq!(&decode(&encode_with_schema(&batch).unwrap(), &schema).unwrap(), &batch);
    }

    #[test]
    fn schemas_survive_their_bytes(seed: u64) {
        let (schema, _) = stream(&mut Rng(seed), 0);
        let key: Vec<String> = schema.key_names().map(str::to_owned).collect();
        prop_assert_eq!(StreamSchema::from_bytes(&schema.to_bytes().unwrap(), &key).unwrap(), schema);
    }

    #[test]
    fn keys_decode_to_columns_with_the_same_keys(seed: u64, rows in 1_usize..50) {
        let (schema, batch) = stream(&mut Rng(seed), rows);
        let found = keys(&batch, &schema).unwrap();
        let columns = decode_keys(&found, &schema).unwrap();
        let places = schema.key_places();
        let again = RecordBatch::try_new(batch.project(places).unwrap().schema(), columns).unwrap();
        prop_assert_eq!(&keys(&again, &schema).unwrap(), &found);
        let hashed: Vec<u64> = found.iter().map(|key| hash_key(key)).collect();
        prop_assert_eq!(hashes(&batch, &schema).unwrap(), hashed);
    }

    #[test]
    fn kv_rows_come_back_with_their_tombstones(seed: u64, rows in 0_usize..30) {
        let rng = &mut Rng(seed);
        let (schema, batch) = stream(rng, rows);
        let payload = encode_kv(&batch, &schema).unwrap();
        let decoded = decode_kv_payload(&payload, &schema).unwrap();
        prop_assert_eq!(decoded.num_rows(), rows);
        prop_assert_eq!(keys(&decoded, &schema).unwrap(), keys(&batch, &schema).unwrap());
        for place in 0..batch.num_columns() {
            // A key that is left alone has one form of NaN and of zero; all else is as it was.
            if !schema.key_places().contains(&place) {
                prop_assert_eq!(decoded.column(place), batch.column(place));
            }
        }
        // Every value alone, as the machine gives it.
        let single = batch.num_columns() == schema.key_places().len();
        for row in 0..rows {
            let one = batch.slice(row, 1);
            if single || one.columns().iter().enumerate().any(|(place, column)| {
                !schema.key_places().contains(&place) && column.is_valid(0)
            }) {
                let value = encode(&one).unwrap();
                prop_assert_eq!(decode_kv_rows(&[value], &schema).unwrap(), one);
            }
        }
    }

    #[test]
    fn bytes_come_back(seed: u64, rows in 0_usize..100) {
        let rng = &mut Rng(seed);
        let batch = batch(rng, &StreamSchema::bytes(), rows);
        let decoded = decode_bytes(&encode_bytes(&batch).unwrap()).unwrap();
        prop_assert_eq!(decoded.column(1), batch.column(1));
        prop_assert_eq!(keys(&decoded, &StreamSchema::bytes()).unwrap(), keys(&batch, &StreamSchema::bytes()).unwrap());
    }

    #[test]
    fn damaged_payloads_never_panic(seed: u64, rows in 0_usize..80) {
        let rng = &mut Rng(seed);
        let (schema, batch) = stream(rng, rows);
        let kv = encode_kv(&batch.slice(0, rows.min(5)), &schema).unwrap();
        let payloads = [encode(&batch).unwrap(), encode_with_schema(&batch).unwrap()];
        let schema_bytes = Bytes::from(schema.to_bytes().unwrap());
        for _ in 0..20 {
            for payload in &payloads {
                walk(decode(&damaged(rng, payload), &schema));
            }
            walk(decode_kv_payload(&damaged(rng, &kv), &schema));
            walk(decode_bytes(&damaged(rng, &kv)));
            let _ = StreamSchema::from_bytes(&damaged(rng, &schema_bytes), &[]);
        }
        // Of another stream.
        let (other, _) = stream(rng, 0);
        walk(decode(&payloads[0], &other));
        walk(decode(&payloads[1], &other));
    }

    #[test]
    fn random_bytes_never_panic(seed: u64, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (schema, _) = stream(&mut Rng(seed), 0);
        let mut headed = vec![1, [1, 2, 3][seed as usize % 3], 0, 0];
        headed.extend_from_slice(&bytes);
        for payload in [Bytes::from(bytes.clone()), Bytes::from(headed)] {
            walk(decode(&payload, &schema));
            walk(decode_kv_payload(&payload, &schema));
            walk(decode_bytes(&payload));
            let _ = decode_keys(&[&payload], &schema);
            let _ = StreamSchema::from_bytes(&payload, &[]);
        }
    }

    #[test]
    fn row_limits_hold(seed: u64, rows in 1_usize..40, limit in 1_u64..200) {
        let rng = &mut Rng(seed);
        let (_, batch) = stream(rng, rows);
        // One look at all rows finds what looking at each finds.
        let first = (0..rows).find(|row| check_row_bytes(&batch.slice(*row, 1), limit).is_err());
        match check_row_bytes(&batch, limit) {
            Ok(()) => prop_assert_eq!(first, None),
            Err(RowsError::RowTooLarge { row, bytes, .. }) => {
                prop_assert_eq!(first, Some(row));
                prop_assert!(bytes > limit);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

#[test]
fn every_type_goes_round() {
    let rng = &mut Rng(5);
    for data_type in all_types() {
        for rows in [0, 1, 9, 500] {
            let field = arrow_schema::Field::new("c", data_type.clone(), true);
            let schema = arrow_schema::Schema::new(vec![field]);
            let schema = StreamSchema::from_arrow(std::sync::Arc::new(schema), &[]).unwrap();
            let column = array(rng, &data_type, rows + 7, true).slice(5, rows);
            let batch = RecordBatch::try_new(schema.arrow().clone(), vec![column]).unwrap();
            assert_eq!(decode(&encode(&batch).unwrap(), &schema).unwrap(), batch, "{data_type}");
        }
    }
}
