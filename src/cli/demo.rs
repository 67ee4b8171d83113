//! `demo`: the real daemon on a simulated cluster.

use anyhow::Result;
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {}

pub(super) async fn demo(_args: DemoArgs) -> Result<()> {
    std::future::ready(Ok(())).await
}
