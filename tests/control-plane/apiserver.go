package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// newAPIServer sets kube-apiserver up on the listener; what it returns serves until ctx ends.
// The set-up is process-wide (feature gates, logging): one in a process, once.
func newAPIServer(ctx context.Context, ln net.Listener, certs *pki, etcdURL string, extra []string) (func() error, error) {
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	s := options.NewServerRunOptions()
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, f := range s.Flags().FlagSets {
		fs.AddFlagSet(f)
	}
	args := []string{
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ln.Addr().(*net.TCPAddr).Port),
		"--endpoint-reconciler-type=none",
		"--etcd-servers=" + etcdURL,
		"--service-cluster-ip-range=10.0.0.0/16",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--anonymous-auth=false",
		"--enable-admission-plugins=NodeRestriction",
		"--tls-cert-file=" + certs.file("apiserver.crt"),
		"--tls-private-key-file=" + certs.file("apiserver.key"),
		"--client-ca-file=" + certs.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + certs.file("sa.key"),
		"--service-account-signing-key-file=" + certs.file("sa.key"),
		"--profiling=false",
		"--shutdown-delay-duration=0s",
	}
	if err := fs.Parse(append(args, extra...)); err != nil {
		return nil, err
	}
	s.SecureServing.Listener = ln
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	if err := logsapi.ValidateAndApply(s.Logs, nil); err != nil {
		return nil, err
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	return func() error { return app.Run(ctx, completed) }, nil
}

func waitReady(ctx context.Context, server string, certs *pki, errc chan error) error {
	pool := x509.NewCertPool()
	pool.AddCert(certs.pairs["ca"].cert)
	admin := certs.pairs["admin"]
	cert, err := tls.X509KeyPair(admin.certPEM, admin.keyPEM)
	if err != nil {
		return err
	}
	hc := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}},
	}}
	defer hc.CloseIdleConnections()
	last := ""
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if resp, err := hc.Get(server + "/readyz"); err != nil {
			last = err.Error()
		} else {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = string(b)
		}
		select {
		case err := <-errc:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("kube-apiserver not ready: %s", last)
}
