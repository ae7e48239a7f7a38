//! The turns of a copy's driver: calls one after the other, on connections that end.

use crate::etcd::Etcd;
use crate::server::SETTINGS;
use cluster::Moment;
use cluster::coordinator::{
    Changes, Coordinator, Failure, Health, LeaseCall, LeaseReply, Member, Outcome, Range, Revision,
    Transaction,
};
use cluster::copy::{Copy, Facts, Role};
use cluster::driver::Driver;
use cluster::id::{Id, Incarnation};
use cluster::topology::{Address, Replica, Topology};
use cluster::view::{Keys, View};
use std::cell::{Cell, RefCell};

/// A coordinator whose connection may have ended: the next call fails, and the one behind it is
/// made on another one.
struct Ending<'a> {
    etcd: &'a RefCell<Etcd>,
    has_ended: &'a Cell<bool>,
}

impl Ending<'_> {
    fn call<T>(&self, call: impl FnOnce(&mut Etcd) -> Result<T, Failure>) -> Result<T, Failure> {
        match self.has_ended.take() {
            true => Err(Failure::Away("the connection has ended".into())),
            false => call(&mut self.etcd.borrow_mut()),
        }
    }
}

impl Coordinator for Ending<'_> {
    fn range(&mut self, prefix: &str, at: Option<Revision>) -> Result<Range, Failure> {
        self.call(|etcd| etcd.range(prefix, at))
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, Failure> {
        self.call(|etcd| etcd.commit(transaction))
    }

    fn lease(&mut self, call: LeaseCall) -> Result<LeaseReply, Failure> {
        self.call(|etcd| etcd.lease(call))
    }

    fn watch(&mut self, prefix: &str, from: Revision, time: Moment) -> Result<Changes, Failure> {
        self.call(|etcd| etcd.watch(prefix, from, time))
    }

    fn members(&mut self) -> Result<Vec<Member>, Failure> {
        self.call(Etcd::members)
    }

    fn health(&mut self) -> Result<Health, Failure> {
        self.call(Etcd::health)
    }
}

/// The transaction rests on what was read before. A coordinator with older files may have another
/// value at the same revision.
#[test]
fn no_transaction_is_sent_behind_a_call_that_has_failed() {
    let (etcd, has_ended) = (RefCell::new(Etcd::new()), Cell::new(false));
    let now = Cell::new(Moment::ZERO);
    let (me, incarnation) = (Id::new([1; 20]), Incarnation(1));
    let address = Address { host: "10.0.0.1".into(), port: 7000, ..Address::default() };
    let myself = Replica { id: me, address, member: None, is_never_promoted: false };
    let coordinator = Ending { etcd: &etcd, has_ended: &has_ended };
    let copy = Copy::new(me, incarnation, SETTINGS);
    let mut driver = Driver::new(copy, coordinator, Keys::new("turns"), myself, incarnation);
    let facts = Facts { is_whole: true, ..Facts::default() };
    let turn = |driver: &mut Driver<Ending<'_>>, ms: u64| {
        now.set(now.get() + Moment::from_millis(ms));
        driver.turn(&|| now.get(), &facts, |_| {});
        etcd.borrow().revision
    };
    let leads = |driver: &Driver<_>| matches!(driver.copy().role(), Role::Leads(_));
    (0..10).for_each(|_| _ = turn(&mut driver, 10));
    assert!(leads(&driver) && driver.copy().is_alone(now.get()));
    let before = turn(&mut driver, 10);
    // Its lease is to be renewed, and its new port to be said.
    driver.copy().listens_on_bus(17_000);
    driver.copy().reached_all();
    has_ended.set(true);
    assert_eq!(turn(&mut driver, 1000), before, "it was sent on a connection that is new");
    assert!(!has_ended.get() && !driver.copy().is_coordinator_present());
    let after = (0..10).map(|_| turn(&mut driver, 100)).max();
    assert_eq!(after, Some(before + 1), "it is made when the coordinator was read again");
    assert!(leads(&driver));
}

/// A coordinator with older files goes on counting. Its history tells, as far as it goes back.
#[test]
fn a_newer_topology_of_another_history_is_no_continuation() {
    for is_compacted in [false, true] {
        let (etcd, has_ended) = (RefCell::new(Etcd::new()), Cell::new(false));
        let now = Cell::new(Moment::ZERO);
        let (me, incarnation) = (Id::new([1; 20]), Incarnation(1));
        let address = Address { host: "10.0.0.1".into(), port: 7000, ..Address::default() };
        let myself = Replica { id: me, address, member: None, is_never_promoted: false };
        let keys = Keys::new("turns");
        let coordinator = Ending { etcd: &etcd, has_ended: &has_ended };
        let copy = Copy::new(me, incarnation, SETTINGS);
        let mut driver = Driver::new(copy, coordinator, keys.clone(), myself, incarnation);
        let facts = Facts { is_whole: true, ..Facts::default() };
        let turns = |driver: &mut Driver<Ending<'_>>| {
            for _ in 0..10 {
                now.set(now.get() + Moment::from_millis(300));
                driver.turn(&|| now.get(), &facts, |_| {});
            }
        };
        let change = |quorum| {
            let range = etcd.borrow_mut().range(&keys.database(me), None).expect("it is up");
            let view = View::decode(&keys, me, &range).expect("it is valid").expect("it is there");
            let topology = Topology { quorum, ..view.topology.value.clone() };
            let outcome = etcd.borrow_mut().commit(&view.replace(&topology));
            assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
        };
        turns(&mut driver);
        etcd.borrow_mut().back_up();
        change(1);
        turns(&mut driver);
        assert!(!driver.copy().is_store_behind(), "the history is the same");
        etcd.borrow_mut().roll_back();
        // The first of these has the revision that is known, and another value.
        (2..8).for_each(&change);
        if is_compacted {
            etcd.borrow_mut().compact();
        }
        let known = driver.copy().known().map(|known| known.topology);
        now.set(now.get() + Moment::from_secs(2));
        driver.turn(&|| now.get(), &facts, |_| {});
        let is_behind = driver.copy().is_store_behind();
        assert_eq!(is_behind, !is_compacted, "{known:?}");
        turns(&mut driver);
        assert!(!driver.copy().is_store_behind(), "it is told, and not behind for ever");
    }
}
