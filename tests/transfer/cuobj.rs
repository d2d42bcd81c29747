//! The fabric of the suite over cuObject: a server and a client in this process. With the software
//! SDK, or with NVIDIA's where its libraries and a device are there.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use vgwrdma::rdma::{
    ClientMemory, CuClient, CuServer, Descriptor, HostMemory, HugePages, Lease, Op, OwnedToken, Tunables,
};
use vgwrdma::transfer::cuobj::CuEndpoint;
use vgwrdma::transfer::transport::Endpoint;

use crate::rig::Fabric;

const PORT: u16 = 19100;

pub(crate) struct CuObject {
    server: CuServer,
    /// Made with the leases, since an endpoint registers the memory it is given.
    endpoint: Mutex<Option<Arc<CuEndpoint>>>,
    client: CuClient,
    offered: Mutex<HashMap<u64, (ClientMemory, Option<OwnedToken>)>>,
}

impl CuObject {
    pub(crate) fn new() -> Self {
        let server = CuServer::open(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT, &Tunables::default()).unwrap();
        let client = CuClient::open().unwrap();
        Self { server, endpoint: Mutex::default(), client, offered: Mutex::default() }
    }
}

impl Fabric for CuObject {
    fn leases(&self, chunks: usize, chunk_size: usize) -> Vec<Lease> {
        let memory = HostMemory::allocate(chunks * chunk_size, HugePages::Off).unwrap();
        let (memory, leases) = memory.into_leases(chunk_size).unwrap();
        let endpoint = CuEndpoint::new(self.server.clone(), &[memory]).unwrap();
        *self.endpoint.lock().unwrap() = Some(Arc::new(endpoint));
        leases
    }

    fn endpoints(&self) -> Vec<Arc<dyn Endpoint>> {
        let endpoint = self.endpoint.lock().unwrap();
        vec![Arc::clone(endpoint.as_ref().expect("leases come first")) as Arc<dyn Endpoint>]
    }

    fn offer(&self, bytes: &[u8]) -> Arc<Descriptor> {
        let memory = self.client.register(bytes.to_vec()).unwrap();
        let token = memory.owned_token(Op::Put, 0, bytes.len()).unwrap();
        let descriptor = *token.descriptor();
        self.offered.lock().unwrap().insert(descriptor.address, (memory, Some(token)));
        Arc::new(descriptor)
    }

    fn bytes(&self, descriptor: &Descriptor) -> Vec<u8> {
        let mut offered = self.offered.lock().unwrap();
        let (memory, token) = offered.get_mut(&descriptor.address).unwrap();
        if let Some(token) = token.take() {
            token.finish();
        }
        let mut bytes = vec![0; memory.len()];
        memory.copy_out(0, &mut bytes).unwrap();
        bytes
    }

    fn withdraw(&self, descriptor: &Descriptor) {
        self.offered.lock().unwrap()[&descriptor.address].0.revoke().unwrap();
    }

    fn open_channels(&self) -> Option<usize> {
        None
    }
}
