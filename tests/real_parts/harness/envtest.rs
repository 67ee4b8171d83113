//! etcd and kube-apiserver as envtest has them, for who has them already. They come without controllers.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use http::Request;
use k8s_openapi::ByteString;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::json;
use tokio::{runtime, time::sleep};

use super::{
    api_server::{client, free_port},
    process::Process,
};

const ADMIN_TOKEN: &str = "admin-of-the-tests";

/// What comes before the point of a P-256 key in its `SubjectPublicKeyInfo`.
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

pub fn launch(assets: &Path, directory: &Path, port: u16, apiserver_args: &[String]) -> Vec<Process> {
    for program in ["etcd", "kube-apiserver"] {
        let path = assets.join(program);
        assert!(path.is_file(), "KUBEBUILDER_ASSETS: no {}; unset it to use the tests' own", path.display());
    }
    let file = |name: &str| directory.join(name).display().to_string();
    let spawn = |program: &str, args: &[String]| {
        let log = File::options().create(true).append(true).open(file(&format!("{program}.log")));
        Process::spawn_tied(program, &assets.join(program), args, log.expect("open a log"))
    };
    if !directory.join("sa.key").exists() {
        write_service_account_keys(directory);
        fs::write(file("tokens.csv"), format!("{ADMIN_TOKEN},admin,admin,system:masters\n"))
            .expect("write tokens");
    }
    let etcd_url = format!("http://127.0.0.1:{}", free_port());
    let etcd = spawn(
        "etcd",
        &[
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
            format!("--data-dir={}", file("etcd")),
            format!("--listen-client-urls={etcd_url}"),
            format!("--advertise-client-urls={etcd_url}"),
            format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()),
        ],
    );
    let mut args = vec![
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
        // Nothing makes the service account `default`.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--secure-port={port}"),
        format!("--etcd-servers={etcd_url}"),
        format!("--cert-dir={}", directory.display()),
        format!("--token-auth-file={}", file("tokens.csv")),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
    ];
    args.extend_from_slice(apiserver_args);
    let api = spawn("kube-apiserver", &args);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority": file("apiserver.crt"),
        }}],
        "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
    });
    let path = directory.join("admin.kubeconfig");
    fs::write(&path, kubeconfig.to_string()).expect("write a kubeconfig");
    assert!(
        is_ready(&path),
        "kube-apiserver of KUBEBUILDER_ASSETS did not get ready; see {}",
        directory.display()
    );
    vec![etcd, api]
}

/// A pair that signs the tokens of service accounts, as kube-apiserver reads it.
fn write_service_account_keys(directory: &Path) {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("make a key");
    let pair =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).expect("own key");
    let spki = [&P256_PREFIX[..], pair.public_key().as_ref()].concat();
    for (name, label, der) in [("sa.key", "PRIVATE KEY", pkcs8.as_ref()), ("sa.pub", "PUBLIC KEY", &spki)] {
        let base64 = json!(ByteString(der.to_vec()));
        let pem =
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", base64.as_str().expect("base64"));
        fs::write(directory.join(name), pem).expect("write a key");
    }
}

/// Asks `/readyz` from a thread of its own: the caller's may belong to a runtime already.
fn is_ready(kubeconfig: &Path) -> bool {
    let kubeconfig = kubeconfig.to_owned();
    let asking = std::thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("make a runtime");
        runtime.block_on(async {
            for _ in 0..600 {
                // The certificate of the server appears only after its start.
                if let Ok(client) = client(&kubeconfig).await {
                    let request = Request::get("/readyz").body(Vec::new()).expect("a request");
                    if client.request_text(request).await.is_ok() {
                        return true;
                    }
                }
                sleep(Duration::from_millis(100)).await;
            }
            false
        })
    });
    asking.join().expect("the thread that asks")
}
