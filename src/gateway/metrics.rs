//! Counters of the gateway and their Prometheus text.
//!
//! Body bytes of HTTP are counted at the listener, in the wrappers of the request and response
//! bodies, so an object that moved by RDMA is seen not to have passed through HTTP.
//! Format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

mod engine;
mod histogram;
pub(crate) mod serve;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::request::Carrier;
use histogram::Histogram;

/// What a finished request adds to the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// S3 operation, or `Unknown` when the request ended before it was known.
    pub(crate) operation: &'static str,
    /// HTTP status.
    pub(crate) status: u16,
    /// What carried the object.
    pub(crate) carrier: Carrier,
    /// From the request's head to the last byte of the answer.
    pub(crate) elapsed: Duration,
    /// Bytes read from clients' memory.
    pub(crate) rdma_in: u64,
    /// Bytes written to clients' memory.
    pub(crate) rdma_out: u64,
}

/// The counters of one gateway. All only grow, but for the gauges.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16, Carrier), u64>>,
    latency: Mutex<BTreeMap<(&'static str, Carrier), Histogram>>,
    http_in: AtomicU64,
    http_out: AtomicU64,
    rdma_in: AtomicU64,
    rdma_out: AtomicU64,
    declined: AtomicU64,
    refused_connections: AtomicU64,
    connections: AtomicI64,
    in_flight: AtomicI64,
}

/// Sums of bytes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesMoved {
    /// Request bodies read by the HTTP listener.
    pub http_in: u64,
    /// Response bodies given to the HTTP listener (also error documents and listings).
    pub http_out: u64,
    /// Object bytes read from clients' memory.
    pub rdma_in: u64,
    /// Object bytes written to clients' memory.
    pub rdma_out: u64,
}

fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

impl Metrics {
    pub(crate) fn http_received(&self, bytes: u64) {
        add(&self.http_in, bytes);
    }

    pub(crate) fn http_sent(&self, bytes: u64) {
        add(&self.http_out, bytes);
    }

    /// A request asked for RDMA and was answered without it.
    pub(crate) fn rdma_declined(&self) {
        add(&self.declined, 1);
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection that ended before HTTP began (TLS handshake).
    pub(crate) fn connection_refused(&self) {
        add(&self.refused_connections, 1);
    }

    pub(crate) fn request_started(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn request_finished(&self, end: &Finished) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        add(&self.rdma_in, end.rdma_in);
        add(&self.rdma_out, end.rdma_out);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((end.operation, end.status, end.carrier)).or_default() += 1;
        drop(requests);
        let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        latency.entry((end.operation, end.carrier)).or_default().record(end.elapsed);
    }

    /// Bytes moved since the start.
    pub fn bytes(&self) -> BytesMoved {
        BytesMoved {
            http_in: self.http_in.load(Ordering::Relaxed),
            http_out: self.http_out.load(Ordering::Relaxed),
            rdma_in: self.rdma_in.load(Ordering::Relaxed),
            rdma_out: self.rdma_out.load(Ordering::Relaxed),
        }
    }

    /// How many requests of an operation ended with a status, by whichever carrier.
    pub fn requests(&self, operation: &str, status: u16) -> u64 {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().filter(|(k, _)| k.0 == operation && k.1 == status).map(|(_, n)| n).sum()
    }

    /// Requests being served now.
    pub fn in_flight(&self) -> i64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The Prometheus text of these counters.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let bytes = self.bytes();
        family(&mut out, "vgwrdma_http_body_bytes_total", "counter", "Body bytes through the HTTP listener.");
        sample(&mut out, "vgwrdma_http_body_bytes_total", "direction=\"in\"", bytes.http_in);
        sample(&mut out, "vgwrdma_http_body_bytes_total", "direction=\"out\"", bytes.http_out);
        family(&mut out, "vgwrdma_rdma_bytes_total", "counter", "Object bytes moved by RDMA.");
        sample(&mut out, "vgwrdma_rdma_bytes_total", "direction=\"in\"", bytes.rdma_in);
        sample(&mut out, "vgwrdma_rdma_bytes_total", "direction=\"out\"", bytes.rdma_out);
        let declined = self.declined.load(Ordering::Relaxed);
        family(
            &mut out,
            "vgwrdma_rdma_declined_total",
            "counter",
            "Requests with an RDMA token answered without RDMA.",
        );
        sample(&mut out, "vgwrdma_rdma_declined_total", "", declined);
        family(&mut out, "vgwrdma_connections", "gauge", "Open client connections.");
        sample(&mut out, "vgwrdma_connections", "", self.connections.load(Ordering::Relaxed));
        family(
            &mut out,
            "vgwrdma_connections_refused_total",
            "counter",
            "Connections whose TLS handshake failed.",
        );
        sample(
            &mut out,
            "vgwrdma_connections_refused_total",
            "",
            self.refused_connections.load(Ordering::Relaxed),
        );
        family(&mut out, "vgwrdma_requests_in_flight", "gauge", "Requests being served.");
        sample(&mut out, "vgwrdma_requests_in_flight", "", self.in_flight());

        family(&mut out, "vgwrdma_requests_total", "counter", "Finished requests.");
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((operation, status, carrier), count) in requests {
            let labels =
                format!("operation=\"{operation}\",status=\"{status}\",carrier=\"{}\"", carrier.name());
            sample(&mut out, "vgwrdma_requests_total", &labels, count);
        }
        family(
            &mut out,
            "vgwrdma_request_seconds",
            "histogram",
            "Time from a request's head to the last byte of its answer.",
        );
        let latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((operation, carrier), histogram) in latency {
            let labels = format!("operation=\"{operation}\",carrier=\"{}\"", carrier.name());
            histogram.render(&mut out, "vgwrdma_request_seconds", &labels);
        }
        out
    }
}

/// Starts a metric family.
pub(crate) fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// One sample; `labels` without the braces, or empty.
pub(crate) fn sample(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = if labels.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{labels}}} {value}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_request_shows_up() {
        let metrics = Metrics::default();
        metrics.request_started();
        metrics.request_started();
        metrics.http_received(7);
        metrics.request_finished(&Finished {
            operation: "PutObject",
            status: 200,
            carrier: Carrier::Rdma,
            elapsed: Duration::from_millis(3),
            rdma_in: 4096,
            rdma_out: 0,
        });
        let text = metrics.render();
        assert!(
            text.contains(
                "vgwrdma_requests_total{operation=\"PutObject\",status=\"200\",carrier=\"rdma\"} 1\n"
            )
        );
        assert!(text.contains("vgwrdma_rdma_bytes_total{direction=\"in\"} 4096\n"));
        assert!(text.contains("vgwrdma_http_body_bytes_total{direction=\"in\"} 7\n"));
        assert!(text.contains("vgwrdma_requests_in_flight 1\n"));
        assert!(text.contains("vgwrdma_request_seconds_count{operation=\"PutObject\",carrier=\"rdma\"} 1\n"));
        assert_eq!(metrics.requests("PutObject", 200), 1);
    }
}
