//! What the engine is measured over: a client within the process by plain copies, or cuObject.

use std::error::Error;
use std::sync::Arc;

use vgwrdma::rdma::{Descriptor, Lease};
use vgwrdma::transfer::transport::Endpoint;
use vgwrdma::transfer::transport::memory::{Carrier, MemoryConfig, MemoryEndpoint, RemoteMemory, leases};

/// Names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Copies on two threads of the endpoint, as a NIC would make them beside the lanes.
    Memory,
    /// cuObject's server and client, both in this process: the software SDK, or NVIDIA's.
    #[cfg(feature = "client")]
    Cuobject,
}

/// A client and an endpoint.
pub(crate) trait Fabric {
    /// Memory for the engine, and the endpoint that it is registered with.
    fn server(&self, chunks: usize, chunk_size: usize) -> Result<Server, Box<dyn Error>>;
    /// Registers bytes at the client; they stay registered.
    fn offer(&self, bytes: &[u8]) -> Result<Arc<Descriptor>, Box<dyn Error>>;
    /// The client's bytes.
    fn bytes(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Box<dyn Error>>;
}

/// An endpoint and its memory.
pub(crate) type Server = (Arc<dyn Endpoint>, Vec<Lease>);

pub(crate) fn open(kind: Kind) -> Result<Box<dyn Fabric>, Box<dyn Error>> {
    match kind {
        Kind::Memory => Ok(Box::new(Copies(RemoteMemory::new()))),
        #[cfg(feature = "client")]
        Kind::Cuobject => Ok(Box::new(cuobject::CuObject::open()?)),
    }
}

struct Copies(RemoteMemory);

impl Fabric for Copies {
    fn server(&self, chunks: usize, chunk_size: usize) -> Result<Server, Box<dyn Error>> {
        let config = MemoryConfig { carrier: Carrier::Threads(2), ..MemoryConfig::default() };
        Ok((Arc::new(MemoryEndpoint::new(self.0.clone(), config)), leases(chunks, chunk_size)?))
    }

    fn offer(&self, bytes: &[u8]) -> Result<Arc<Descriptor>, Box<dyn Error>> {
        Ok(Arc::new(self.0.register(bytes)))
    }

    fn bytes(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Box<dyn Error>> {
        Ok(self.0.bytes(descriptor))
    }
}

#[cfg(feature = "client")]
mod cuobject {
    use std::collections::HashMap;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Mutex;

    use vgwrdma::rdma::{
        ClientMemory, CuClient, CuServer, HostMemory, HugePages, Op, OwnedToken, Provider, Tunables,
    };
    use vgwrdma::transfer::cuobj::CuEndpoint;

    use super::*;

    pub(super) struct CuObject {
        server: CuServer,
        client: CuClient,
        offered: Mutex<HashMap<u64, (ClientMemory, OwnedToken)>>,
    }

    impl CuObject {
        pub(super) fn open() -> Result<Self, Box<dyn Error>> {
            println!("{}", Provider::current()?);
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let server = CuServer::open(address, 19100, &Tunables::default())?;
            Ok(Self { server, client: CuClient::open()?, offered: Mutex::default() })
        }
    }

    impl Fabric for CuObject {
        fn server(&self, chunks: usize, chunk_size: usize) -> Result<Server, Box<dyn Error>> {
            let memory = HostMemory::allocate(chunks * chunk_size, HugePages::Advise)?;
            let (memory, leases) = memory.into_leases(chunk_size)?;
            Ok((Arc::new(CuEndpoint::new(self.server.clone(), &[memory])?), leases))
        }

        fn offer(&self, bytes: &[u8]) -> Result<Arc<Descriptor>, Box<dyn Error>> {
            let memory = self.client.register(bytes.to_vec())?;
            let token = memory.owned_token(Op::Put, 0, bytes.len())?;
            let descriptor = *token.descriptor();
            self.offered.lock().expect("bench lock").insert(descriptor.address, (memory, token));
            Ok(Arc::new(descriptor))
        }

        fn bytes(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Box<dyn Error>> {
            let offered = self.offered.lock().expect("bench lock");
            let memory = &offered.get(&descriptor.address).ok_or("memory that was never offered")?.0;
            let mut bytes = vec![0; memory.len()];
            memory.copy_out(0, &mut bytes)?;
            Ok(bytes)
        }
    }
}
