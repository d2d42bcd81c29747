//! Puts and gets an object by RDMA from memory of the host.
//!
//! ```text
//! AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… cargo run --example host_memory -- http://gateway:7070 bucket
//! ```
//!
//! The buffer is registered once; every request hands the gateway a fresh token for a part of it.

use anyhow::{Context as _, Result, ensure};
use vgwrdma::client::{Client, Credentials, GetOptions, RdmaSession};

const SIZE: usize = 4 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().context("usage: host_memory URL BUCKET")?;
    let bucket = arguments.next().context("usage: host_memory URL BUCKET")?;
    let access = std::env::var("AWS_ACCESS_KEY_ID").context("AWS_ACCESS_KEY_ID is not set")?;
    let secret = std::env::var("AWS_SECRET_ACCESS_KEY").context("AWS_SECRET_ACCESS_KEY is not set")?;
    let client = Client::builder(endpoint).credentials(Credentials::new(access, secret)).build()?;
    client.ensure_bucket(&bucket).await?;

    // The session is the process' cuObject client. Registering pins the memory, so it is done once
    // and not for each request.
    let session = RdmaSession::open()?;
    let mut buffer = session.host_buffer(SIZE)?;

    let data: Vec<u8> = (0..SIZE).map(|i| (i % 251) as u8).collect();
    buffer.copy_in(0, &data)?;
    let put = client.put(&bucket, "example", &buffer, 0..SIZE).await?;
    println!("stored {SIZE} bytes, ETag {}", put.etag);

    // The gateway writes straight into the buffer. Clearing it first shows that it did.
    buffer.fill(0)?;
    let got = client.get(&bucket, "example", &mut buffer, &GetOptions::exactly(SIZE as u64)).await?;
    ensure!(buffer.as_slice()? == Some(&data[..]), "the bytes differ");
    println!("fetched {} bytes, all equal", got.bytes);

    // A part of the object into a part of the buffer.
    let part = client.get_range(&bucket, "example", 1000..2000, &mut buffer, 0).await?;
    println!("fetched bytes 1000 to 1999: {}", part.bytes);
    client.delete_object(&bucket, "example").await?;
    Ok(())
}
