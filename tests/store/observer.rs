//! What the store does to the file system, seen and disturbed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use vgwrdma::store::{Durability, FsObserver, FsOp, Store, StoreOptions};

use super::common::{BUCKET, Fixture};

/// Records operations and fails the nth of a kind.
#[derive(Default)]
pub(crate) struct Failing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: Vec<(FsOp, String)>,
    plan: Option<(FsOp, usize, Errno)>,
}

impl Failing {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Fails the `nth` operation of this kind from now on (from 1) and all later ones.
    pub(crate) fn fail(&self, op: FsOp, nth: usize, error: Errno) {
        let mut state = self.state.lock().unwrap();
        state.seen.clear();
        state.plan = Some((op, nth, error));
    }

    pub(crate) fn clear(&self) {
        *self.state.lock().unwrap() = State::default();
    }

    /// What was done since the last clearing.
    pub(crate) fn seen(&self) -> Vec<(FsOp, String)> {
        self.state.lock().unwrap().seen.clone()
    }
}

impl FsObserver for Failing {
    fn before(&self, op: FsOp, name: &str) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.seen.push((op, name.to_owned()));
        let count = state.seen.iter().filter(|(seen, _)| *seen == op).count();
        match state.plan {
            Some((planned, nth, error)) if planned == op && count >= nth => Err(error.into()),
            _ => Ok(()),
        }
    }
}

pub(crate) fn observed(observer: &Arc<Failing>, change: impl FnOnce(&mut StoreOptions)) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("root")).unwrap();
    let mut options = StoreOptions { durability: Durability::None, ..StoreOptions::default() };
    change(&mut options);
    let store = Store::open_observed(
        &dir.path().join("root"),
        options,
        Some(Arc::<Failing>::clone(observer) as Arc<dyn FsObserver>),
    )
    .unwrap();
    store.create_bucket(BUCKET, &BTreeMap::new()).unwrap();
    observer.clear();
    Fixture { dir, versions: None, store }
}
