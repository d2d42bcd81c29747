//! Upkeep while the gateway runs: what crashes left is swept, again and again.

use std::time::Duration;

use tokio::sync::watch;

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
