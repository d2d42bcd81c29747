//! `--direct-io`: bodies by RDMA past the page cache, on a file system of the build directory.

use http::Method;
use test_case::test_case;
use vgwrdma::gateway::config::DirectIo;

use crate::fixture::{CHUNK, TestGateway, crc64nvme, engine_config, md5_hex, pattern};

#[test_case(DirectIo::On; "on")]
#[test_case(DirectIo::Auto; "auto")]
#[test_case(DirectIo::Off; "off")]
#[tokio::test(flavor = "multi_thread")]
async fn bytes_and_digests_are_the_same(mode: DirectIo) {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let gateway = TestGateway::rdma_in(root, 16, |c| c.direct_io = mode, engine_config(), |e| e).await;
    for length in [1, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 4097] {
        let data = pattern(length, 9);
        let descriptor = gateway.memory.register(&data);
        let put = gateway.request(Method::PUT, "/bucket/key").token(&descriptor).send().await.ok();
        assert_eq!(put.header("etag"), format!("\"{}\"", md5_hex(&data)));
        assert_eq!(put.header("x-amz-checksum-crc64nvme"), crc64nvme(&data));
        assert!(std::fs::read(gateway.file("key")).unwrap() == data);
        for (first, last) in
            [(0, length - 1), (length / 3, length - 1), (length / 2, length - length / 5 - 1)]
        {
            if first > last {
                continue;
            }
            let span = first..last + 1;
            let into = gateway.memory.register(&vec![0xee; span.len() + 8]);
            let get = gateway.request(Method::GET, "/bucket/key").token(&into);
            let answer = get.header("range", format!("bytes={first}-{last}")).send().await.ok();
            assert_eq!(answer.header("x-amz-rdma-reply"), "206");
            assert_eq!(answer.header("x-amz-checksum-crc64nvme"), crc64nvme(&data[span.clone()]));
            let memory = gateway.memory.bytes(&into);
            assert!(memory[..span.len()] == data[span.clone()] && memory[span.len()..] == [0xee; 8]);
        }
        // What is written past the page cache is seen over HTTP, and the other way round.
        assert!(gateway.get("key").await.ok().body == data);
        let other = pattern(length, 10);
        gateway.put("key", other.clone()).await.ok();
        let into = gateway.memory.register(&vec![0; length]);
        gateway.request(Method::GET, "/bucket/key").token(&into).send().await.ok();
        assert!(gateway.memory.bytes(&into) == other);
    }
}
