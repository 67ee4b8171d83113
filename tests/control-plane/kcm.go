package main

import (
	"context"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

// The controllers that the tests see at work: they make pods again, collect what lost its owner, empty namespaces, and check
// the types of admission policies.
const controllers = "serviceaccount-controller,root-ca-certificate-publisher-controller," +
	"namespace-controller,garbage-collector-controller,daemonset-controller,replicaset-controller,statefulset-controller," +
	"validatingadmissionpolicy-status-controller"

func runKCM(ctx context.Context, kubeconfig string, certs *pki) error {
	s, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, off, alias := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	fs := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
	nfs := s.Flags(known, off, alias)
	for _, f := range nfs.FlagSets {
		fs.AddFlagSet(f)
	}
	if err := fs.Parse([]string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=" + controllers,
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + certs.file("sa.key"),
		"--root-ca-file=" + certs.file("ca.crt"),
		"--controller-start-interval=0s",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--profiling=false",
	}); err != nil {
		return err
	}
	cfg, err := s.Config(ctx, known, off, alias)
	if err != nil {
		return err
	}
	return app.Run(ctx, cfg.Complete())
}
