//! A small gateway for tests: the scripted server with objects in memory, and bodies by RDMA through
//! the real server library of this build.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use vgwrdma::client::headers::{LEGACY_START, LEGACY_TOKEN, RDMA_TOKEN};
use vgwrdma::digest::{Algorithm, Digester};
use vgwrdma::rdma::{
    Channel, CuServer, Descriptor, Direction, HostMemory, HugePages, Local, Operation, RegisteredMemory,
    Tunables,
};

use crate::server::{Reply, Request, Server};

/// Moves bytes between the objects and the client's memory.
struct Mover {
    server: CuServer,
    channel: Channel,
}

impl Mover {
    fn new(dc_key: u64) -> Self {
        let tunables = Tunables { dc_key, num_dcis: 4, ..Tunables::default() };
        let server = CuServer::open("127.0.0.1".parse().unwrap(), 19100, &tunables).unwrap();
        let channel = server.channel().unwrap();
        Self { server, channel }
    }

    /// Carries `bytes` to the client, or reads as many from it. The status' name on failure.
    fn transfer(
        &mut self,
        direction: Direction,
        descriptor: Descriptor,
        start: u64,
        bytes: &mut [u8],
    ) -> Result<(), String> {
        let mut lease = HostMemory::allocate(bytes.len(), HugePages::Off).unwrap().into_whole();
        let memory = RegisteredMemory::new(&self.server, Arc::clone(lease.memory())).unwrap();
        lease.copy_from_slice(bytes);
        let operation = Operation {
            ticket: 0,
            direction,
            descriptor: Arc::new(descriptor),
            remote_start: start,
            length: bytes.len(),
            local: Local::lease(&memory, lease).unwrap(),
        };
        let local = self.channel.transfer(operation, None).map_err(|failed| failed.error.to_string())?;
        bytes.copy_from_slice(&local.into_leases()[0]);
        Ok(())
    }
}

/// What the gateway keeps.
#[derive(Default)]
struct Objects {
    whole: HashMap<String, Vec<u8>>,
    parts: BTreeMap<u32, Vec<u8>>,
}

/// Starts a gateway whose channel presents `dc_key`. `spoil` may change what a GET delivers.
pub(crate) fn start(dc_key: u64, spoil: impl Fn(&mut Vec<u8>) + Send + 'static) -> Server {
    let mover = Mutex::new(Mover::new(dc_key));
    let mut objects = Objects::default();
    Server::start(move |request, _| {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        if path.matches('/').count() < 2 {
            return Reply::new(200, &[], b"");
        }
        let mut mover = mover.lock().unwrap();
        match (request.method.as_str(), query) {
            ("POST", "uploads=") => Reply::new(
                200,
                &[],
                b"<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>",
            ),
            ("POST", _) => {
                let whole = std::mem::take(&mut objects.parts).into_values().flatten().collect();
                objects.whole.insert(path.to_owned(), whole);
                Reply::new(200, &[], b"<CompleteMultipartUploadResult/>")
            }
            ("PUT", query) => put(&mut mover, &mut objects, path, query, request),
            ("GET" | "HEAD", _) => match objects.whole.get(path) {
                Some(object) => get(&mut mover, object, &spoil, request),
                None => Reply::error(404, "NoSuchKey", "no such object"),
            },
            _ => Reply::Send(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        }
    })
}

/// The token of a request and where its transfer starts.
fn token(request: &Request) -> Option<(Descriptor, u64)> {
    let text = request.header(RDMA_TOKEN).or(request.header(LEGACY_TOKEN))?;
    let descriptor = Descriptor::parse(text).unwrap();
    let start = request.header(LEGACY_START).map_or(descriptor.address, |start| start.parse().unwrap());
    Some((descriptor, start))
}

fn put(mover: &mut Mover, objects: &mut Objects, path: &str, query: &str, request: &Request) -> Reply {
    let (bytes, reply) = match token(request) {
        None => (request.body.clone(), Reply::new(200, &[("ETag", "\"e\"")], b"")),
        Some((descriptor, start)) => {
            let mut bytes = vec![0; descriptor.size as usize];
            if let Err(error) = mover.transfer(Direction::Read, descriptor, start, &mut bytes) {
                return Reply::error(400, "InvalidArgument", &error);
            }
            (bytes, Reply::rdma(200, u64::from(descriptor.size)))
        }
    };
    if let Some(expected) = request.header("x-amz-checksum-crc64nvme")
        && expected != crc64(&bytes)
    {
        return Reply::error(400, "BadDigest", "the checksum differs");
    }
    match query.split('&').find_map(|pair| pair.strip_prefix("partNumber=")) {
        Some(number) => objects.parts.insert(number.parse().unwrap(), bytes),
        None => objects.whole.insert(path.to_owned(), bytes),
    };
    reply
}

fn get(mover: &mut Mover, object: &[u8], spoil: &impl Fn(&mut Vec<u8>), request: &Request) -> Reply {
    let checksum = crc64(object);
    if request.method == "HEAD" {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"e\"\r\nx-amz-checksum-crc64nvme: {checksum}\r\n\r\n",
            object.len()
        );
        return Reply::Send(head.into_bytes());
    }
    let mut bytes = object.to_vec();
    spoil(&mut bytes);
    let (mut status, mut content_range) = (200, String::new());
    if let Some(range) = request.header("range") {
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        content_range = format!("bytes {first}-{last}/{}", object.len());
        (status, bytes) = (206, bytes[first..=last].to_vec());
    }
    let mut headers = vec![("ETag", "\"e\"")];
    match status {
        206 => headers.push(("Content-Range", &content_range)),
        _ => headers.push(("x-amz-checksum-crc64nvme", &checksum)),
    }
    let Some((descriptor, start)) = token(request) else { return Reply::new(status, &headers, &bytes) };
    if let Err(error) = mover.transfer(Direction::Write, descriptor, start, &mut bytes) {
        return Reply::error(400, "InvalidArgument", &error);
    }
    let (status_text, count) = (status.to_string(), bytes.len().to_string());
    headers.push(("x-amz-rdma-reply", &status_text));
    headers.push(("x-amz-rdma-bytes-transferred", &count));
    Reply::new(status, &headers, b"")
}

fn crc64(data: &[u8]) -> String {
    let mut digester = Digester::new(false, [Algorithm::Crc64Nvme]);
    digester.update(data);
    digester.finish().base64(Algorithm::Crc64Nvme).unwrap()
}
