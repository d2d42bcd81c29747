//! The transport over cuObject: the engine's traits on [`CuServer`] and its channels.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::transport::{self, Completion, Endpoint, Operation, Rejected};
use crate::rdma::channel::{DEPTH, Refusal};
use crate::rdma::{self, CuServer, HostMemory, Lease, Local, RegisteredMemory};

/// A server endpoint with the memory that the engine works in.
pub struct CuEndpoint {
    name: String,
    server: CuServer,
    memory: Arc<[Arc<RegisteredMemory>]>,
}

impl CuEndpoint {
    /// Registers every slab with the server. Leases of other memory will be refused.
    ///
    /// # Errors
    /// [`rdma::Error::Register`] when the library refuses a slab.
    pub fn new(server: CuServer, slabs: &[Arc<HostMemory>]) -> rdma::Result<Self> {
        let memory = slabs
            .iter()
            .map(|slab| RegisteredMemory::new(&server, Arc::clone(slab)))
            .collect::<rdma::Result<_>>()?;
        Ok(Self { name: server.address().to_string(), server, memory })
    }

    /// The server.
    pub fn server(&self) -> &CuServer {
        &self.server
    }
}

impl fmt::Debug for CuEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuEndpoint").field("server", &self.server).field("memory", &self.memory).finish()
    }
}

impl Endpoint for CuEndpoint {
    fn name(&self) -> &str {
        &self.name
    }

    fn address(&self) -> Option<IpAddr> {
        Some(self.server.address())
    }

    fn open_channel(&self) -> rdma::Result<Box<dyn transport::Channel>> {
        Ok(Box::new(CuChannel {
            channel: self.server.channel()?,
            memory: Arc::clone(&self.memory),
            completed: Vec::with_capacity(DEPTH),
            unknown: 0,
        }))
    }
}

/// A channel of the safe layer behind the engine's trait.
#[derive(Debug)]
struct CuChannel {
    channel: rdma::Channel,
    memory: Arc<[Arc<RegisteredMemory>]>,
    /// Kept between polls for its capacity.
    completed: Vec<rdma::Completion>,
    /// Submissions of which nothing will be heard; the channel is lost with the first.
    unknown: usize,
}

impl transport::Channel for CuChannel {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn in_flight(&self) -> usize {
        self.channel.in_flight() + self.unknown
    }

    fn submit(&mut self, operation: Operation) -> Result<(), Box<Rejected>> {
        let Some(memory) = self.memory.iter().find(|memory| memory.covers(&operation.lease)) else {
            let error = rdma::Error::Invalid {
                operation: "submit",
                what: format!(
                    "the lease is not of memory registered with {}",
                    self.channel.server().address()
                ),
            };
            return Err(Box::new(Rejected { error, operation }));
        };
        let local = Local::Lease { memory: Arc::clone(memory), lease: operation.lease };
        let submitted = self.channel.try_submit(rdma::Operation {
            ticket: operation.ticket,
            direction: operation.direction,
            descriptor: operation.descriptor,
            remote_start: operation.remote_start,
            length: operation.length,
            local,
        });
        match submitted {
            Ok(()) => Ok(()),
            Err(Refusal::Rejected(error, refused)) => {
                Err(Box::new(Rejected { error, operation: give_back(*refused) }))
            }
            Err(Refusal::Unknown(error)) => {
                // The engine learns at its next poll that the channel is of no more use; the lease
                // of this operation is withheld like those in flight.
                tracing::error!(%error, "RDMA channel lost while submitting");
                self.unknown += 1;
                Ok(())
            }
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> rdma::Result<()> {
        let polled = self.channel.poll(&mut self.completed);
        completions.extend(self.completed.drain(..).filter_map(|ended| {
            let lease = only_lease(ended.local)?;
            Some(Completion { ticket: ended.ticket, status: ended.status, lease })
        }));
        polled
    }
}

/// The engine's form of an operation that was made of it.
fn give_back(operation: rdma::Operation) -> Operation {
    let rdma::Operation { ticket, direction, descriptor, remote_start, length, local } = operation;
    let lease = match local {
        Local::Lease { lease, .. } => lease,
        Local::Gather(_) => unreachable!("operations of this adapter are made of one lease"),
    };
    Operation { ticket, direction, descriptor, remote_start, length, lease }
}

/// The lease of an operation that was submitted here.
fn only_lease(local: Local) -> Option<Lease> {
    match local {
        Local::Lease { lease, .. } => Some(lease),
        Local::Gather(_) => None,
    }
}
