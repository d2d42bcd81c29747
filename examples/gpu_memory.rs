//! Puts and gets an object by RDMA from memory of a CUDA device.
//!
//! ```text
//! AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… cargo run --example gpu_memory -- http://gateway:7070 bucket
//! ```
//!
//! The bytes never touch the host's memory on their way between the gateway and the device: the
//! copies below only make and check test data.

use anyhow::{Context as _, Result, ensure};
use vgwrdma::client::{Client, Credentials, GetOptions, RdmaSession};
use vgwrdma::gpu::Gpu;

const SIZE: usize = 64 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().context("usage: gpu_memory URL BUCKET")?;
    let bucket = arguments.next().context("usage: gpu_memory URL BUCKET")?;
    let access = std::env::var("AWS_ACCESS_KEY_ID").context("AWS_ACCESS_KEY_ID is not set")?;
    let secret = std::env::var("AWS_SECRET_ACCESS_KEY").context("AWS_SECRET_ACCESS_KEY is not set")?;
    let client = Client::builder(endpoint).credentials(Credentials::new(access, secret)).build()?;
    client.ensure_bucket(&bucket).await?;

    // The driver is loaded here, not when the program starts: where it or the device is missing,
    // this is an error that says so.
    let gpu = Gpu::open(0)?;
    println!("{}", gpu.name()?);
    let session = RdmaSession::open()?;
    let mut buffer = session.gpu_buffer(&gpu, SIZE)?;

    let data: Vec<u8> = (0..SIZE).map(|i| (i % 251) as u8).collect();
    buffer.copy_in(0, &data)?;
    client.put(&bucket, "example", &buffer, 0..SIZE).await?;
    println!("stored {SIZE} bytes from the device");

    buffer.fill(0)?;
    client.get(&bucket, "example", &mut buffer, &GetOptions::exactly(SIZE as u64)).await?;
    let mut back = vec![0; SIZE];
    buffer.copy_out(0, &mut back)?;
    ensure!(back == data, "the bytes differ");
    println!("fetched them into the device, all equal");
    client.delete_object(&bucket, "example").await?;
    Ok(())
}
