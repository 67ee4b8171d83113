// control-plane runs etcd, kube-apiserver and kube-controller-manager in one process, for the tests with
// real parts. It stops on SIGTERM and when its standard input ends, so it never outlives its test.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type config struct {
	dataDir, logFile string
	port             int
	apiserverArgs    multi
}

type multi []string

func (m *multi) String() string     { return strings.Join(*m, " ") }
func (m *multi) Set(s string) error { *m = append(*m, s); return nil }

func main() {
	c := &config{}
	flag.StringVar(&c.dataDir, "data-dir", "", "directory for etcd data, certificates and kubeconfigs (required)")
	flag.StringVar(&c.logFile, "log-file", "", "send all logs (fd 2) to this file")
	flag.IntVar(&c.port, "port", 0, "kube-apiserver port on 127.0.0.1, 0 picks a free one")
	flag.Var(&c.apiserverArgs, "apiserver-arg", "extra kube-apiserver flag, repeatable, for example --v=2")
	flag.Parse()
	if err := run(c); err != nil {
		fmt.Fprintln(os.Stderr, "control-plane:", err)
		os.Exit(1)
	}
}

func run(c *config) (err error) {
	if c.dataDir == "" {
		return errors.New("--data-dir is required")
	}
	if c.dataDir, err = filepath.Abs(c.dataDir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dataDir, 0o700); err != nil {
		return err
	}
	if err := redirectLogs(c.logFile); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()

	certs, err := newPKI(filepath.Join(c.dataDir, "pki"))
	if err != nil {
		return err
	}
	etcd, err := startEtcd(c.dataDir)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer etcd.stop()

	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.port))
	if err != nil {
		return err
	}
	server := "https://" + ln.Addr().String()
	errc := make(chan error, 2)
	apiDone := make(chan struct{})
	api, err := newAPIServer(ctx, ln, certs, etcd.url, c.apiserverArgs)
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	go func() {
		defer close(apiDone)
		if err := api(); err != nil {
			errc <- fmt.Errorf("kube-apiserver: %w", err)
		}
	}()
	if err := waitReady(ctx, server, certs, errc); err != nil {
		return err
	}
	kcm := filepath.Join(c.dataDir, "kcm.kubeconfig")
	if err := certs.writeKubeconfig(kcm, server, "kcm"); err != nil {
		return err
	}
	go func() {
		if err := runKCM(ctx, kcm, certs); err != nil && ctx.Err() == nil {
			errc <- fmt.Errorf("kube-controller-manager: %w", err)
		}
	}()
	admin := filepath.Join(c.dataDir, "admin.kubeconfig")
	if err := certs.writeKubeconfig(admin, server, "admin"); err != nil {
		return err
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"server": server, "kubeconfig": admin})

	select {
	case <-ctx.Done():
	case err = <-errc:
	case err = <-etcd.server.Err():
	}
	stop()
	select {
	case <-apiDone:
	case <-time.After(10 * time.Second):
	}
	return err
}

// redirectLogs sends file descriptor 2 to the file: the components log there from many places.
func redirectLogs(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return syscall.Dup3(int(f.Fd()), 2, 0)
}
