//! Client processes that are killed before, during and after their transfers, on the software SDK.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use http::Method;
use vgwrdma::rdma::{CuClient, CuServer, HostMemory, HugePages, Op, Tunables};
use vgwrdma::transfer::Engine;
use vgwrdma::transfer::cuobj::CuEndpoint;
use vgwrdma::transfer::transport::failing::{FailingEndpoint, Fault};
use vgwrdma::transfer::transport::memory::RemoteMemory;

use crate::fixture::{CHUNK, TestGateway, engine_config, pattern};

const ROLE: &str = "VGWRDMA_TEST_ROLE";
const LENGTH: usize = 3 * CHUNK + 5;

/// Another process with registered memory that holds the pattern of seed 7.
struct Client {
    child: Child,
    token: String,
}

impl Client {
    /// Runs the part of the test `name` that is for the client.
    fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, "client")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
        let token = lines.filter_map(|l| Some(l.split_once("TOKEN ")?.1.to_owned())).next();
        Self { token: token.expect("a token"), child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The client's part: offers its memory until it is killed.
fn offer() {
    let memory = CuClient::open().unwrap().register(pattern(LENGTH, 7)).unwrap();
    let token = memory.owned_token(Op::Put, 0, LENGTH).unwrap();
    println!("\nTOKEN {}", token.as_str());
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A gateway on the software SDK whose operations wait until they are released.
async fn gateway() -> (TestGateway, Arc<FailingEndpoint>) {
    let config = engine_config();
    let tunables = Tunables { timeout: 10, retry_count: 0, ..Tunables::default() };
    let server = CuServer::open(IpAddr::V4(Ipv4Addr::LOCALHOST), 19100, &tunables).unwrap();
    let slab = HostMemory::allocate(8 * config.chunk_size, HugePages::Off).unwrap();
    let (slab, leases) = slab.into_leases(config.chunk_size).unwrap();
    let endpoint = Arc::new(CuEndpoint::new(server, &[slab]).unwrap());
    let endpoint = Arc::new(FailingEndpoint::new(endpoint, |_| Fault::Hang));
    let engine = Engine::start(config, vec![Arc::clone(&endpoint) as _], leases).unwrap();
    (TestGateway::start(|_| {}, Some(Arc::new(engine)), RemoteMemory::new()).await, endpoint)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_client_fails_its_own_transfers_only() {
    if std::env::var_os(ROLE).is_some() {
        return offer();
    }
    let name = "rdma_killed::a_killed_client_fails_its_own_transfers_only";
    let (gateway, endpoint) = gateway().await;
    gateway.put("key", "old").await.ok();
    let request = |method: Method, key: &str, client: &Client| {
        gateway.request(method, &format!("/bucket/{key}")).header("x-amz-rdma-token", &client.token)
    };

    // During: an operation of each is under way when the client dies.
    let mut client = Client::start(name);
    let put = tokio::spawn(request(Method::PUT, "key", &client).send());
    let get = tokio::spawn(request(Method::GET, "key", &client).send());
    gateway
        .until("both wait", |g| g.stats().transfers_running == 2 && g.stats().operations_in_flight > 3)
        .await;
    client.kill();
    endpoint.release();
    for answer in [put.await.unwrap(), get.await.unwrap()] {
        assert!([400, 503].contains(&answer.status.as_u16()), "{} {}", answer.status, answer.text());
        assert_eq!((answer.header("x-amz-rdma-reply"), answer.header("etag")), ("", ""));
    }
    assert_eq!(gateway.get("key").await.ok().text(), "old");

    // Before: nobody is there any more.
    let mut client = Client::start(name);
    client.kill();
    let answer = request(Method::PUT, "key", &client).send().await;
    answer.fails(503, "ServiceUnavailable");
    assert!(answer.text().contains("IBV_WC_RETRY_EXC_ERR"), "{}", answer.text());
    request(Method::GET, "key", &client).send().await.fails(503, "ServiceUnavailable");
    assert_eq!(gateway.get("key").await.ok().text(), "old");
    assert!(gateway.debris().is_empty());

    // After: what has been acknowledged stays.
    let mut client = Client::start(name);
    request(Method::PUT, "key", &client).send().await.ok();
    client.kill();
    assert!(gateway.get("key").await.ok().body == pattern(LENGTH, 7));
    let next = Client::start(name);
    assert_eq!(request(Method::GET, "key", &next).send().await.ok().header("x-amz-rdma-reply"), "200");
}
