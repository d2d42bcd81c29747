//! The client library against a scripted server: what it sends, and what it makes of replies.
#![cfg(feature = "client")]

mod replies;
mod requests;
mod server;
mod tls;

use std::time::Duration;

use server::Server;
use vgwrdma::client::testing::{Peer, VecMemory};
use vgwrdma::client::{Buffer, Client, ClientBuilder, Credentials, PartOf, Timeouts};

/// A client of the server with short waits.
fn builder(server: &Server) -> ClientBuilder {
    let wait = Duration::from_secs(5);
    Client::builder(server.url()).credentials(Credentials::new("access", "secret")).timeouts(Timeouts {
        connect: wait,
        reply: wait,
        stall: wait,
    })
}

fn client(server: &Server) -> Client {
    builder(server).build().unwrap()
}

/// A buffer that holds `content`, and its far side.
fn buffer(content: &[u8]) -> (Buffer, Peer) {
    let memory = VecMemory::new(content.len());
    let peer = memory.peer();
    peer.write(0, content);
    (Buffer::new(memory), peer)
}

/// The requests can be spawned on a runtime of several threads.
#[test]
fn futures_move_between_threads() {
    fn moves(_: impl Send) {}
    fn check(client: &Client, buffer: &mut Buffer, other: &Buffer) {
        moves(client.ensure_bucket("b"));
        moves(client.head_object("b", "k"));
        moves(client.delete_object("b", "k"));
        moves(client.put("b", "k", other, 0..1));
        moves(client.put_http("b", "k", other, 0..1, &Default::default()));
        moves(client.put_by_token("b", "k", "", 1));
        moves(client.get_by_token("b", "k", "", 1, &Default::default()));
        moves(client.create_multipart("b", "k"));
        moves(client.upload_part("b", "k", "id", 1, other, 0..1));
        let part = PartOf { bucket: "b", key: "k", upload_id: "id", number: 1 };
        moves(client.upload_part_with(part, other, 0..1, &Default::default()));
        moves(client.upload_part_http(part, other, 0..1, &Default::default()));
        moves(client.complete_multipart("b", "k", "id", &[]));
        moves(client.abort_multipart("b", "k", "id"));
        moves(client.get_http("b", "k", buffer, &Default::default()));
        moves(client.get_range("b", "k", 0..1, buffer, 0));
        moves(client.get("b", "k", buffer, &Default::default()));
    }
    let _ = check;
}
