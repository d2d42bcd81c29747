//! Uses `cuObjPut` and `cuObjGet` of NVIDIA's client class, with a control path of one's own.
//!
//! ```text
//! AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… cargo run --example class_callbacks -- http://gateway:7070 bucket
//! ```
//!
//! The class mints the descriptor and calls back for the request that carries it to the server; with
//! several NICs it may call again over another one. Programs that have no reason to use the class'
//! own calls are better served by `Client::put` and `Client::get`.

use anyhow::{Context as _, Result, ensure};
use vgwrdma::client::{Client, Credentials, GetOptions, RdmaSession};

const SIZE: usize = 1 << 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().context("usage: class_callbacks URL BUCKET")?;
    let bucket = arguments.next().context("usage: class_callbacks URL BUCKET")?;
    let access = std::env::var("AWS_ACCESS_KEY_ID").context("AWS_ACCESS_KEY_ID is not set")?;
    let secret = std::env::var("AWS_SECRET_ACCESS_KEY").context("AWS_SECRET_ACCESS_KEY is not set")?;
    let client = Client::builder(endpoint).credentials(Credentials::new(access, secret)).build()?;
    // The class' calls block, so the program is synchronous and the callbacks enter the runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(client.ensure_bucket(&bucket))?;

    let session = RdmaSession::open()?;
    let library = session.client();
    let data: Vec<u8> = (0..SIZE).map(|i| (i % 251) as u8).collect();
    let mut memory = library.register(data.clone())?;

    let moved = library.put(&mut memory, SIZE, |request| {
        let length = request.length as u64;
        runtime.block_on(client.put_by_token(&bucket, "callbacks", request.descriptor, length))?;
        Ok(request.length)
    })?;
    println!("cuObjPut moved {moved} bytes");

    memory.as_mut_slice()?.fill(0);
    let moved = library.get(&mut memory, SIZE, |request| {
        let length = request.length as u64;
        let options = GetOptions::exactly(length);
        runtime.block_on(client.get_by_token(&bucket, "callbacks", request.descriptor, length, &options))?;
        Ok(request.length)
    })?;
    ensure!(memory.as_slice()? == data, "the bytes differ");
    println!("cuObjGet moved {moved} bytes, all equal");
    runtime.block_on(client.delete_object(&bucket, "callbacks"))?;
    Ok(())
}
