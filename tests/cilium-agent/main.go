// cilium-agent runs the endpoint API of the real Cilium agent without a datapath, for tests.
//
// REST server, endpoint manager, PUT/GET/DELETE handlers, API rate limiter, identity allocation and the
// CiliumEndpoint synchroniser are Cilium's own, taken from its Go module. hive.go replaces what is left.
// It stops on SIGTERM and when its standard input ends, so it never outlives its test.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium/cilium/daemon/cmd"
	endpointCreator "github.com/cilium/cilium/pkg/endpoint/creator"
	"github.com/cilium/cilium/pkg/hive"
	ipamOption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/labelsfilter"
	nodeTypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/policy"
)

type config struct {
	dir, kubeconfig, node, nodeIPs, podCIDRs, logFile string
	ingress                                           bool
}

func main() {
	c := &config{}
	flag.StringVar(&c.dir, "dir", "", "directory for cilium.sock and all state (required)")
	flag.StringVar(&c.kubeconfig, "kubeconfig", "", "the API server (required); the user needs wide rights")
	flag.StringVar(&c.node, "node", "n1", "name of the node; a missing Node object is made")
	flag.StringVar(&c.nodeIPs, "node-ip", "192.168.77.10", "node addresses, comma separated, for a Node without any")
	flag.StringVar(&c.podCIDRs, "pod-cidr", "10.244.1.0/24", "pod CIDRs, comma separated, for a Node without any; an IPv6 one turns IPv6 on")
	flag.BoolVar(&c.ingress, "ingress", false, "allocate an ingress IP (CiliumNode spec.ingress) and hold it with the endpoint reserved:ingress")
	flag.StringVar(&c.logFile, "log-file", "", "send all logs to this file instead of standard error")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: cilium-agent --dir DIR [flags] [-- flags of the real agent]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(c); err != nil {
		fmt.Fprintln(os.Stderr, "cilium-agent:", err)
		os.Exit(1)
	}
}

func run(c *config) (err error) {
	if c.dir == "" || c.kubeconfig == "" {
		return errors.New("--dir and --kubeconfig are required")
	}
	for _, p := range []*string{&c.dir, &c.kubeconfig} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	state := filepath.Join(c.dir, "state")
	if err := os.MkdirAll(filepath.Join(state, "globals"), 0o755); err != nil {
		return err
	}
	ready, err := redirectOutput(c.logFile)
	if err != nil {
		return err
	}
	// The code asks argv[0] whether it is the agent (pkg/components).
	os.Args[0] = "cilium-agent"
	nodeTypes.SetName(c.node)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var creator endpointCreator.EndpointCreator
	h := newHive(c, &creator)
	root := &cobra.Command{Use: "cilium-agent", SilenceUsage: true, SilenceErrors: true}
	root.RunE = func(*cobra.Command, []string) error {
		if err := configure(log, h, c.dir, state); err != nil {
			return err
		}
		if err := h.Populate(log); err != nil {
			return err
		}
		if err := h.Start(log, ctx); err != nil {
			return err
		}
		if c.ingress { // the agent's own job waits for a restore that never runs here
			if err := creator.AddIngressEndpoint(ctx); err != nil {
				return err
			}
		}
		if err := waitReady(ctx, option.Config.SocketPath); err != nil {
			return err
		}
		_ = json.NewEncoder(ready).Encode(map[string]any{
			"socket": option.Config.SocketPath, "version": version(), "node": c.node,
		})
		<-ctx.Done()
		sctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return h.Stop(log, sctx)
	}
	h.RegisterFlags(root.Flags())
	cmd.InitGlobalFlags(log, root, h.Viper())
	args := []string{
		"--enable-ipv6=" + fmt.Sprint(strings.Contains(c.podCIDRs, ":")),
		"--enable-envoy-config=" + fmt.Sprint(c.ingress),
		"--enable-health-checking=false", "--enable-endpoint-health-checking=false", // they need a network namespace
		"--k8s-kubeconfig-path=" + c.kubeconfig, "--k8s-client-qps=200", "--k8s-client-burst=400",
	}
	root.SetArgs(append(args, flag.Args()...))
	return root.Execute()
}

// configure sets the options that the real agent derives from its flags and its host.
func configure(log *slog.Logger, h *hive.Hive, dir, state string) error {
	o := option.Config
	o.Populate(log, h.Viper())
	o.PopulateEnableCiliumNodeCRD(log, h.Viper())
	o.RunDir, o.StateDir = dir, state
	o.SocketPath = filepath.Join(dir, "cilium.sock")
	o.IdentityAllocationMode = option.IdentityAllocationModeCRD
	o.IPAM = ipamOption.IPAMKubernetes
	o.DryMode = true // no BPF maps, no devices
	o.RestoreState = false
	o.EnableL7Proxy = false
	o.Opts = option.NewIntOptions(&option.DaemonMutableOptionLibrary)
	if err := labelsfilter.ParseLabelPrefixCfg(log, nil, nil, ""); err != nil {
		return err
	}
	policy.SetPolicyEnabled(option.DefaultEnforcement)
	_ = os.Remove(o.SocketPath)
	return os.Chdir(state)
}

// redirectOutput keeps standard output for the one ready line: the agent logs to it by default.
func redirectOutput(logFile string) (*os.File, error) {
	fd, err := syscall.Dup(1)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	if logFile != "" {
		f, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		if err := syscall.Dup3(int(f.Fd()), 2, 0); err != nil {
			return nil, err
		}
	}
	return os.NewFile(uintptr(fd), "ready"), syscall.Dup3(2, 1, 0)
}

// waitReady asks the API for its short health, which needs the whole start-up to be over.
func waitReady(ctx context.Context, socket string) error {
	hc := &http.Client{Timeout: 5 * time.Second, Transport: unixTransport(socket)}
	defer hc.CloseIdleConnections()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if resp, err := hc.Get("http://localhost/v1/healthz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.New("the API did not get ready in a minute")
}

// version is that of the Cilium module which this binary was built with.
func version() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, d := range bi.Deps {
			if d.Path == "github.com/cilium/cilium" {
				return strings.TrimPrefix(d.Version, "v")
			}
		}
	}
	return "unknown"
}
