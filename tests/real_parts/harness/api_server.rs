//! A real kube-apiserver: that of our control plane, or with `KUBEBUILDER_ASSETS` that of envtest.

use std::{
    env,
    error::Error,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::OnceLock,
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use tokio::sync::OnceCell;

use super::{
    agent::{Agent, AgentSpec},
    envtest, go,
    manifests::install,
    process::Process,
    say,
};

const START: Duration = Duration::from_mins(2);

/// Requests of service accounts of the daemon's namespace, with their outcome; nobody else's.
const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:cilium-leak-healer"]},
        {"level": "None"}
    ]
}"#;

pub struct ApiServer {
    pub kubeconfig: PathBuf,
    /// Whether controllers make pods again and collect garbage.
    pub controllers: bool,
    pub audit_log: PathBuf,
    assets: Option<PathBuf>,
    directory: PathBuf,
    port: u16,
    processes: Vec<Process>,
    prepared: OnceCell<()>,
}

impl ApiServer {
    /// The one that the tests of this process share; it ends with the process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ApiServer> = OnceLock::new();
        SHARED.get_or_init(|| Self::start("shared"))
    }

    /// Installs, once, what all tests need: the manifests, and the CRDs, which agents register, but not at one time.
    pub async fn prepare(&self) {
        self.prepare_with(async || install(&self.admin().await).await).await;
    }

    /// The same with what is installed in another way, before there are any CRDs.
    pub async fn prepare_with(&self, install: impl AsyncFnOnce()) {
        let prepare = async || {
            install().await;
            drop(Agent::start(AgentSpec {
                kubeconfig: self.kubeconfig.clone(),
                node: "crds".to_owned(),
                node_ip: "192.168.77.254".to_owned(),
                pod_cidr: "10.244.254.0/24".to_owned(),
                ingress: false,
            }));
        };
        self.prepared.get_or_init(prepare).await;
    }

    /// One for a test that stops it.
    pub fn start(name: &str) -> Self {
        let directory = run_directory().join(name);
        fs::create_dir_all(&directory).expect("make the directory of a control plane");
        fs::write(directory.join("audit-policy.json"), AUDIT_POLICY).expect("write the audit policy");
        let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let mut server = Self {
            kubeconfig: directory.join("admin.kubeconfig"),
            controllers: assets.is_none(),
            audit_log: directory.join("audit.log"),
            assets,
            port: free_port(),
            directory,
            processes: Vec::new(),
            prepared: OnceCell::new(),
        };
        server.launch();
        server
    }

    pub fn stop(&mut self) {
        self.processes.clear();
    }

    /// Starts it, again with the data and the address that it had.
    pub fn launch(&mut self) {
        let audit = [
            format!("--audit-policy-file={}", self.directory.join("audit-policy.json").display()),
            format!("--audit-log-path={}", self.audit_log.display()),
        ];
        self.processes = match &self.assets {
            Some(assets) => envtest::launch(assets, &self.directory, self.port, &audit),
            None => vec![launch(&self.directory, self.port, &audit)],
        };
    }

    /// A client with all rights. Clients belong to the runtime of the test that made them.
    pub async fn admin(&self) -> Client {
        client(&self.kubeconfig).await.expect("a usable kubeconfig")
    }
}

pub async fn client(kubeconfig: &Path) -> Result<Client, Box<dyn Error>> {
    client_from(Kubeconfig::read_from(kubeconfig)?).await
}

/// A client by the text of a kubeconfig.
pub async fn client_of(kubeconfig: &str) -> Client {
    client_from(Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig")).await.expect("a usable kubeconfig")
}

async fn client_from(kubeconfig: Kubeconfig) -> Result<Client, Box<dyn Error>> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn launch(directory: &Path, port: u16, apiserver_args: &[String]) -> Process {
    let mut command = Command::new(go::control_plane());
    command.arg("--data-dir").arg(directory).arg("--log-file").arg(directory.join("log"));
    command.args(["--port", &port.to_string()]);
    for arg in apiserver_args {
        command.args(["--apiserver-arg", arg]);
    }
    Process::spawn_ready("control-plane", &mut command, START)
}

/// A directory of this process's own. Those of earlier processes go; the last run's stay, with their logs.
fn run_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let runs = go::directory().join("runs");
        for run in fs::read_dir(&runs).into_iter().flatten().flatten() {
            if !Path::new("/proc").join(run.file_name()).exists() {
                let _ = fs::remove_dir_all(run.path());
            }
        }
        let directory = runs.join(process::id().to_string());
        say(&format!("logs of the control planes: {}", directory.display()));
        directory
    })
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
    listener.local_addr().expect("a bound port").port()
}
