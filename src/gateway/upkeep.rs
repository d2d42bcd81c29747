//! Upkeep while the gateway runs: what crashes left is swept and lifecycle rules are applied, again
//! and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;

use super::lifecycle::sweep::{Removed, sweep};
use crate::store::Store;

/// Bounds of the pause between two sweeps.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Sweeps at once and then each time that `after` has passed, until `stop` says so.
pub(crate) async fn sweep_regularly(store: Store, after: Duration, mut stop: watch::Receiver<bool>) {
    loop {
        let store = store.clone();
        match tokio::task::spawn_blocking(move || store.sweep()).await {
            Ok(Ok(swept)) if !swept.is_empty() => {
                tracing::info!(count = swept.len(), "removed what was left behind");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "old temporaries could not be swept"),
            Err(error) => tracing::error!(%error, "the sweep panicked"),
        }
        tokio::select! {
            // An error means that the gateway is gone.
            _ = stop.wait_for(|s| *s) => return,
            () = tokio::time::sleep(after.clamp(SHORTEST, LONGEST)) => {}
        }
    }
}

/// Applies lifecycle rules each time `interval` has passed, until the signal to stop.
pub(crate) async fn apply_lifecycles(store: Store, interval: Duration, mut stop: watch::Receiver<bool>) {
    while tokio::time::timeout(interval, stop.wait_for(|s| *s)).await.is_err() {
        let stopping = Arc::new(AtomicBool::new(false));
        let (store, flag) = (store.clone(), Arc::clone(&stopping));
        let work = tokio::task::spawn_blocking(move || sweep(&store, OffsetDateTime::now_utc(), &flag));
        tokio::select! {
            removed = work => match removed {
                Ok(removed) if removed != Removed::default() => {
                    tracing::info!(?removed, "applied the lifecycle rules");
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "applying lifecycle rules failed"),
            },
            _ = stop.wait_for(|s| *s) => stopping.store(true, Ordering::Relaxed),
        }
    }
}
