//! Which requests were answered and how, so that a retry is answered again and not applied again (OWN-2).

use std::collections::{BTreeMap, VecDeque};

use super::response::MetadataResponse;
use crate::ids::RequestId;

/// Requests remembered; the one answered longest ago is forgotten first.
pub const REQUESTS_REMEMBERED_MAX: usize = 4096;

/// Ids minted by the remembered requests together. Without it, a few huge batches would be remembered in gigabytes.
pub const MINTED_REMEMBERED_MAX: usize = 65_536;

/// A bounded table of answers. Eviction depends on the entries alone, so all replicas forget the same requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Requests {
    answers: BTreeMap<RequestId, MetadataResponse>,
    /// Oldest first.
    order: VecDeque<RequestId>,
    minted: usize,
}

impl Requests {
    /// How the request was answered, if it is remembered.
    pub(super) fn answer(&self, request_id: RequestId) -> Option<&MetadataResponse> {
        self.answers.get(&request_id)
    }

    /// Remembers a request that is not in the table; one without an id is not.
    pub(super) fn remember(&mut self, request_id: RequestId, response: MetadataResponse) {
        if request_id == RequestId::NONE {
            return;
        }
        self.minted += response.minted().len();
        let earlier = self.answers.insert(request_id, response);
        assert!(earlier.is_none(), "OWN-2: request {request_id} was answered twice");
        self.order.push_back(request_id);
        while self.is_over() {
            self.forget_oldest();
        }
    }

    /// The requests and their answers, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, &MetadataResponse)> {
        self.order.iter().map(|id| (*id, &self.answers[id]))
    }

    /// The newest answer is always kept, however much it minted.
    fn is_over(&self) -> bool {
        self.order.len() > REQUESTS_REMEMBERED_MAX
            || (self.minted > MINTED_REMEMBERED_MAX && self.order.len() > 1)
    }

    fn forget_oldest(&mut self) {
        let oldest = self.order.pop_front().expect("a table that is over its bounds is not empty");
        let response = self.answers.remove(&oldest).expect("every id in the order has its answer");
        self.minted -= response.minted().len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    use crate::metadata::Minted;

    fn applied(minted: usize) -> MetadataResponse {
        MetadataResponse::Applied { minted: vec![Minted::Node(NodeId(1)); minted] }
    }

    #[test]
    fn the_oldest_request_is_forgotten_when_one_more_than_the_bound_comes() {
        let mut requests = Requests::default();
        for id in 1..=REQUESTS_REMEMBERED_MAX as u128 {
            requests.remember(RequestId(id), applied(0));
        }
        assert_eq!(requests.answer(RequestId(1)), Some(&applied(0)));
        requests.remember(RequestId(u128::MAX), applied(1));
        assert_eq!(requests.answer(RequestId(1)), None);
        assert_eq!(requests.answer(RequestId(2)), Some(&applied(0)));
        assert_eq!(requests.iter().count(), REQUESTS_REMEMBERED_MAX);
        assert_eq!(requests.iter().last(), Some((RequestId(u128::MAX), &applied(1))));
    }

    #[test]
    fn large_answers_push_out_older_ones_but_the_newest_stays() {
        let mut requests = Requests::default();
        requests.remember(RequestId(1), applied(MINTED_REMEMBERED_MAX - 1));
        requests.remember(RequestId(2), applied(1));
        assert_eq!(requests.iter().count(), 2);
        requests.remember(RequestId(3), applied(MINTED_REMEMBERED_MAX + 1));
        assert_eq!(requests.iter().map(|(id, _)| id).collect::<Vec<_>>(), [RequestId(3)]);
    }

    #[test]
    fn a_request_without_an_id_is_not_remembered() {
        let mut requests = Requests::default();
        requests.remember(RequestId::NONE, applied(0));
        requests.remember(RequestId::NONE, applied(0));
        assert_eq!(requests, Requests::default());
    }
}
