//! Options of listeners, accounts, limits and logs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::FalseyValueParser;
use s3s::auth::SecretKey;
use s3s::host::MultiDomain;

use super::{ACCOUNTS, LOGS, SERVING, Verbosity, mode, seconds};
use crate::gateway::config::{Config, Ownership};
use crate::gateway::listen::ListenAddress;

/// As typed; see the texts, which are the help.
#[derive(Debug, Args)]
#[allow(missing_docs)]
pub struct ServeArguments {
    /// Address to serve S3 on: ip:port, :port, /path/of/a/socket or @abstract-name; port 0 is any free one. Repeatable
    #[arg(long, short = 'p', value_name = "ADDRESS", env = "VGW_PORT", value_delimiter = ',', default_value = ":7070", global = true, help_heading = SERVING)]
    pub port: Vec<ListenAddress>,
    /// Region that requests are signed for
    #[arg(long, short = 'r', env = "VGW_REGION", default_value = "us-east-1", global = true, help_heading = SERVING)]
    pub region: String,
    /// Certificate chain for TLS, a PEM file; SIGHUP reads it again
    #[arg(long, value_name = "FILE", env = "VGW_CERT", global = true, help_heading = SERVING)]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", env = "VGW_KEY", global = true, help_heading = SERVING)]
    pub key: Option<PathBuf>,
    /// Permission bits of Unix sockets
    #[arg(long, value_name = "OCTAL", env = "VGW_SOCKET_PERM", default_value = "0660", value_parser = mode, global = true, help_heading = SERVING)]
    pub socket_perm: u32,
    /// Domain whose sub-domains are buckets (bucket.DOMAIN). Repeatable
    #[arg(long, visible_alias = "vd", value_name = "DOMAIN", env = "VGW_VIRTUAL_DOMAIN", value_delimiter = ',', global = true, help_heading = SERVING)]
    pub virtual_domain: Vec<String>,
    /// Serve several requests on a connection
    #[arg(long, value_name = "BOOL", env = "VGW_KEEP_ALIVE", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, global = true, help_heading = SERVING)]
    pub keep_alive: bool,
    /// Connections at a time; more wait to be accepted
    #[arg(long, visible_alias = "mc", value_name = "N", env = "VGW_MAX_CONNECTIONS", default_value_t = 250_000, global = true, help_heading = SERVING)]
    pub max_connections: usize,
    /// Requests at a time; more are answered SlowDown
    #[arg(long, visible_alias = "mr", value_name = "N", env = "VGW_MAX_REQUESTS", default_value_t = 100_000, global = true, help_heading = SERVING)]
    pub max_requests: usize,
    /// Longest time without a byte of a request's body; then the request fails
    #[arg(long, value_name = "SECONDS", env = "VGW_BODY_TIMEOUT", default_value = "120", value_parser = seconds, global = true, help_heading = SERVING)]
    pub body_timeout: Duration,
    /// Path that answers 200 without signature, for load balancers
    #[arg(long, value_name = "PATH", env = "VGW_HEALTH", global = true, help_heading = SERVING)]
    pub health: Option<String>,
    /// Time between applications of lifecycle rules; 0 refuses such rules
    #[arg(long, value_name = "SECONDS", env = "VGW_LIFECYCLE_INTERVAL", default_value = "3600", value_parser = seconds, global = true, help_heading = SERVING)]
    pub lifecycle_interval: Duration,
    /// Refuse every change
    #[arg(long, env = "VGW_READ_ONLY", value_parser = FalseyValueParser::new(), global = true, help_heading = SERVING)]
    pub readonly: bool,
    /// Accept bucket names outside the rules for DNS names
    #[arg(long, env = "VGW_DISABLE_STRICT_BUCKET_NAMES", value_parser = FalseyValueParser::new(), global = true, help_heading = SERVING)]
    pub disable_strict_bucket_names: bool,

    /// Access key of the root account (also ROOT_ACCESS_KEY_ID)
    #[arg(long, short = 'a', env = "ROOT_ACCESS_KEY", global = true, help_heading = ACCOUNTS)]
    pub access: Option<String>,
    /// Secret key of the root account (also ROOT_SECRET_ACCESS_KEY); the environment keeps it out of the process list
    #[arg(long, short = 's', env = "ROOT_SECRET_KEY", hide_env_values = true, global = true, help_heading = ACCOUNTS)]
    pub secret: Option<String>,
    /// Directory with more accounts, in users.json as versitygw writes it
    #[arg(long, value_name = "DIR", env = "VGW_IAM_DIR", global = true, help_heading = ACCOUNTS)]
    pub iam_dir: Option<PathBuf>,
    /// Object ownership of new buckets that do not ask for one, and of those that have none: whether ACLs count
    #[arg(long, value_enum, env = "VGW_DEFAULT_OWNERSHIP", default_value = "bucket-owner-enforced", global = true, help_heading = ACCOUNTS)]
    pub default_ownership: Ownership,

    /// File for a line per request, in the format of S3's server access logs; SIGHUP reopens it
    #[arg(long, value_name = "FILE", env = "VGW_ACCESS_LOG", global = true, help_heading = LOGS)]
    pub access_log: Option<PathBuf>,
    /// Address to serve Prometheus metrics on, at /metrics; forms as for --port
    #[arg(long, value_name = "ADDRESS", env = "VGW_METRICS_PORT", global = true, help_heading = LOGS)]
    pub metrics_port: Option<ListenAddress>,
    /// Log every request
    #[arg(long, env = "VGW_DEBUG", value_parser = FalseyValueParser::new(), global = true, help_heading = LOGS)]
    pub debug: bool,
    /// Log errors only
    #[arg(long, short = 'q', env = "VGW_QUIET", value_parser = FalseyValueParser::new(), global = true, help_heading = LOGS)]
    pub quiet: bool,
}

impl ServeArguments {
    /// The root account, from options or environment.
    pub(super) fn credentials(&self) -> Result<(String, SecretKey), String> {
        let other = |name: &str| std::env::var(name).ok();
        let access = self.access.clone().or_else(|| other("ROOT_ACCESS_KEY_ID")).filter(|a| !a.is_empty());
        let secret =
            self.secret.clone().or_else(|| other("ROOT_SECRET_ACCESS_KEY")).filter(|s| !s.is_empty());
        let access = access.ok_or("no access key of the root account; give --access or ROOT_ACCESS_KEY")?;
        let secret = secret.ok_or("no secret key of the root account; give ROOT_SECRET_KEY or --secret")?;
        Ok((access, SecretKey::from(secret)))
    }

    pub(super) fn apply(&self, config: &mut Config) -> Result<Verbosity, String> {
        config.listen.clone_from(&self.port);
        config.metrics_listen.clone_from(&self.metrics_port);
        config.region.clone_from(&self.region);
        config.tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            (Some(_), None) => return Err("--cert needs --key, the private key of the certificate".into()),
            (None, Some(_)) => return Err("--key needs --cert, the certificate of the private key".into()),
        };
        config.socket_mode = self.socket_perm;
        if !self.virtual_domain.is_empty() {
            MultiDomain::new(&self.virtual_domain).map_err(|e| format!("--virtual-domain: {e}"))?;
        }
        config.virtual_domains.clone_from(&self.virtual_domain);
        config.keep_alive = self.keep_alive;
        for (name, value) in
            [("--max-connections", self.max_connections), ("--max-requests", self.max_requests)]
        {
            if value == 0 {
                return Err(format!("{name} must be at least 1"));
            }
        }
        config.max_connections = self.max_connections;
        config.max_requests = self.max_requests;
        if self.body_timeout.is_zero() {
            return Err("--body-timeout must be more than 0".into());
        }
        config.body_patience = self.body_timeout;
        if let Some(path) = self.health.as_deref().filter(|p| !p.starts_with('/')) {
            return Err(format!("--health: {path:?} is no path; it must start with /"));
        }
        config.health.clone_from(&self.health);
        config.lifecycle_interval = Some(self.lifecycle_interval).filter(|interval| !interval.is_zero());
        config.store.read_only = self.readonly;
        config.store.relaxed_bucket_names = self.disable_strict_bucket_names;
        config.iam_dir.clone_from(&self.iam_dir);
        config.default_ownership = self.default_ownership;
        config.access_log.clone_from(&self.access_log);
        match (self.debug, self.quiet) {
            (true, true) => Err("--debug and --quiet exclude each other".into()),
            (true, false) => Ok(Verbosity::Debug),
            (false, true) => Ok(Verbosity::Quiet),
            (false, false) => Ok(Verbosity::Normal),
        }
    }
}
