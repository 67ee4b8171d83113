package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cilium/hive/cell"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	k8sErrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	ciliumAPI "github.com/cilium/cilium/pkg/k8s/apis/cilium.io"
	ciliumCRDs "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/client"
	"github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/cilium/cilium/pkg/k8s/apis/crdhelpers"
	k8sClient "github.com/cilium/cilium/pkg/k8s/client"
	k8sSynced "github.com/cilium/cilium/pkg/k8s/synced"
	"github.com/cilium/cilium/pkg/promise"
	"github.com/cilium/cilium/pkg/versioncheck"
)

// kubeCell provides the Kubernetes client, and does first what the operator and a cloud provider would have done.
func kubeCell(c *config) cell.Cell {
	resolver, crds := promise.New[k8sSynced.CRDSync]()
	return cell.Group(
		k8sClient.Cell,
		cell.Provide(func() promise.Promise[k8sSynced.CRDSync] { return crds }),
		// The first start hook after the client's own, so before anything lists or watches.
		cell.Invoke(func(lc cell.Lifecycle, cs k8sClient.Clientset, log *slog.Logger) {
			lc.Append(cell.Hook{OnStart: func(ctx cell.HookContext) error {
				if err := registerCRDs(log, cs); err != nil {
					return fmt.Errorf("CRDs: %w", err)
				}
				resolver.Resolve(k8sSynced.CRDSync{})
				return ensureNode(ctx, c, cs)
			}})
		}),
	)
}

// nodeObject is the Node object for a cluster that has none of that name.
func (c *config) nodeObject() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node}}
	n.Spec.PodCIDRs = strings.Split(c.podCIDRs, ",")
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: c.node}}
	for _, ip := range strings.Split(c.nodeIPs, ",") {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return n
}

// registerCRDs does what the Cilium operator does, all at once instead of half a second and more for each.
func registerCRDs(log *slog.Logger, cs k8sClient.Clientset) error {
	const versionLabel = ciliumAPI.CustomResourceDefinitionSchemaVersionKey
	outdated := crdhelpers.NeedsUpdateV1Factory(versionLabel, versioncheck.MustVersion(ciliumAPI.CustomResourceDefinitionSchemaVersion))
	names, all := k8sSynced.AllCiliumCRDResourceNames(), ciliumCRDs.CustomResourceDefinitionList()
	var g errgroup.Group
	for _, n := range append(names, k8sSynced.CRDResourceName(v2alpha1.CESName)) {
		crd := ciliumCRDs.GetPregeneratedCRD(log, all[n].Name)
		crd.Labels = map[string]string{versionLabel: ciliumAPI.CustomResourceDefinitionSchemaVersion}
		g.Go(func() error { return crdhelpers.CreateUpdateCRD(log, cs, &crd, quickPoller{}, outdated) })
	}
	return g.Wait()
}

type quickPoller struct{}

func (quickPoller) Poll(_, timeout time.Duration, done func() (bool, error)) error {
	return wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, timeout, true,
		func(context.Context) (bool, error) { return done() })
}

// ensureNode makes the Node object, or fills in what IPAM mode "kubernetes" would wait for.
func ensureNode(ctx context.Context, c *config, cs k8sClient.Clientset) error {
	nodes, want := cs.CoreV1().Nodes(), c.nodeObject()
	n, err := nodes.Get(ctx, c.node, metav1.GetOptions{})
	if k8sErrors.IsNotFound(err) {
		n, err = nodes.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
	}
	if err == nil && n.Spec.PodCIDR == "" {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = want.Spec.PodCIDR, want.Spec.PodCIDRs
		n, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
	}
	if err == nil && len(n.Status.Addresses) == 0 {
		n.Status.Addresses = want.Status.Addresses
		_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", c.node, err)
	}
	return nil
}
