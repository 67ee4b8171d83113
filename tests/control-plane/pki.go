package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is the cluster's CA and what it signed. It lives in files, so a restart on the same data dir keeps it.
type pki struct {
	dir   string
	pairs map[string]*keyPair
}

type keyPair struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
	keyPEM  []byte
}

type certReq struct {
	name, cn, org string
	usage         []x509.ExtKeyUsage
}

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir, pairs: map[string]*keyPair{}}
	server, client := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, req := range []certReq{
		{name: "ca", cn: "kubernetes-ca"},
		{name: "apiserver", cn: "kube-apiserver", usage: server},
		{name: "admin", cn: "admin", org: "system:masters", usage: client},
		{name: "kcm", cn: "system:kube-controller-manager", usage: client},
		{name: "sa", cn: "service-accounts"},
	} {
		pair, err := p.load(req.name)
		if errors.Is(err, os.ErrNotExist) {
			pair, err = p.issue(req)
		}
		if err != nil {
			return nil, err
		}
		p.pairs[req.name] = pair
	}
	return p, nil
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// issue makes a pair and its files; the CA, made first, signs itself.
func (p *pki) issue(req certReq) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: req.cn},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           req.usage,
		BasicConstraintsValid: true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if req.org != "" {
		tmpl.Subject.Organization = []string{req.org}
	}
	parent, signer := tmpl, key
	if ca := p.pairs["ca"]; ca != nil {
		parent, signer = ca.cert, ca.key
	} else {
		tmpl.IsCA = true
		tmpl.KeyUsage |= x509.KeyUsageCertSign
	}
	cert, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	for file, block := range map[string]*pem.Block{
		req.name + ".crt": {Type: "CERTIFICATE", Bytes: cert},
		req.name + ".key": {Type: "EC PRIVATE KEY", Bytes: sec1},
	} {
		if err := os.WriteFile(p.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	return p.load(req.name)
}

func (p *pki) load(name string) (*keyPair, error) {
	pair := &keyPair{}
	var err error
	if pair.certPEM, err = os.ReadFile(p.file(name + ".crt")); err != nil {
		return nil, err
	}
	if pair.keyPEM, err = os.ReadFile(p.file(name + ".key")); err != nil {
		return nil, err
	}
	cert, _ := pem.Decode(pair.certPEM)
	key, _ := pem.Decode(pair.keyPEM)
	if cert == nil || key == nil {
		return nil, fmt.Errorf("%s: not PEM", name)
	}
	if pair.cert, err = x509.ParseCertificate(cert.Bytes); err != nil {
		return nil, err
	}
	pair.key, err = x509.ParseECPrivateKey(key.Bytes)
	return pair, err
}

func (p *pki) writeKubeconfig(path, server, user string) error {
	b64 := base64.StdEncoding.EncodeToString
	var b bytes.Buffer
	fmt.Fprintf(&b, `apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: user
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: test
  context: {cluster: test, user: user}
current-context: test
`, server, b64(p.pairs["ca"].certPEM), b64(p.pairs[user].certPEM), b64(p.pairs[user].keyPEM))
	return os.WriteFile(path, b.Bytes(), 0o600)
}
