//! Uploads an object in parts by RDMA, several parts at a time from one registered buffer.
//!
//! ```text
//! AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… cargo run --example multipart -- http://gateway:7070 bucket
//! ```

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use vgwrdma::client::{Client, Credentials, RdmaSession};

const PART: usize = 8 << 20;
const PARTS: u32 = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().context("usage: multipart URL BUCKET")?;
    let bucket = arguments.next().context("usage: multipart URL BUCKET")?;
    let access = std::env::var("AWS_ACCESS_KEY_ID").context("AWS_ACCESS_KEY_ID is not set")?;
    let secret = std::env::var("AWS_SECRET_ACCESS_KEY").context("AWS_SECRET_ACCESS_KEY is not set")?;
    let client = Client::builder(endpoint).credentials(Credentials::new(access, secret)).build()?;
    client.ensure_bucket(&bucket).await?;

    let session = RdmaSession::open()?;
    let mut buffer = session.host_buffer(PART * PARTS as usize)?;
    buffer.fill(0x5a)?;

    let upload = client.create_multipart(&bucket, "parts").await?;
    // Uploads only read the buffer, so any number of them share it. `buffered` keeps their order,
    // which the list of parts needs.
    let parts = stream::iter(1..=PARTS)
        .map(|number| {
            let start = (number as usize - 1) * PART;
            client.upload_part(&bucket, "parts", &upload, number, &buffer, start..start + PART)
        })
        .buffered(2)
        .try_collect::<Vec<_>>()
        .await;
    let done = match parts {
        Ok(parts) => client.complete_multipart(&bucket, "parts", &upload, &parts).await,
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        // Parts that are neither completed nor given up keep their room on the gateway.
        client.abort_multipart(&bucket, "parts", &upload).await?;
        return Err(error.into());
    }
    let info = client.head_object(&bucket, "parts").await?;
    println!("stored {} bytes in {PARTS} parts, ETag {}", info.size, info.etag.unwrap_or_default());
    client.delete_object(&bucket, "parts").await?;
    Ok(())
}
