//! The client library against a scripted server: what it sends, and what it makes of replies.
#![cfg(feature = "client")]

mod replies;
mod requests;
mod server;

use std::time::Duration;

use server::Server;
use vgwrdma::client::testing::{Peer, VecMemory};
use vgwrdma::client::{Buffer, Client, ClientBuilder, Credentials, Timeouts};

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
