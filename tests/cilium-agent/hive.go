package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"
	statedbReconciler "github.com/cilium/statedb/reconciler"
	"github.com/go-openapi/runtime/middleware"

	"github.com/cilium/cilium/api/v1/models"
	"github.com/cilium/cilium/api/v1/server"
	restdaemon "github.com/cilium/cilium/api/v1/server/restapi/daemon"
	"github.com/cilium/cilium/daemon/cmd"
	"github.com/cilium/cilium/daemon/cmd/cni"
	fakecni "github.com/cilium/cilium/daemon/cmd/cni/fake"
	"github.com/cilium/cilium/daemon/cmd/legacy"
	"github.com/cilium/cilium/pkg/api"
	fakeDatapath "github.com/cilium/cilium/pkg/datapath/fake"
	bandwidth "github.com/cilium/cilium/pkg/datapath/linux/bandwidth/types"
	"github.com/cilium/cilium/pkg/datapath/linux/route/reconciler"
	"github.com/cilium/cilium/pkg/datapath/neighbor"
	"github.com/cilium/cilium/pkg/datapath/prefilter"
	datapathTables "github.com/cilium/cilium/pkg/datapath/tables"
	"github.com/cilium/cilium/pkg/dial"
	endpointCreator "github.com/cilium/cilium/pkg/endpoint/creator"
	endpointTypes "github.com/cilium/cilium/pkg/endpoint/types"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/kvstore"
	"github.com/cilium/cilium/pkg/kvstore/store"
	"github.com/cilium/cilium/pkg/loadbalancer"
	lbmaps "github.com/cilium/cilium/pkg/loadbalancer/maps"
	"github.com/cilium/cilium/pkg/maps/ctmap"
	"github.com/cilium/cilium/pkg/maps/lxcmap"
	"github.com/cilium/cilium/pkg/maps/policymap"
	fakePolicyMap "github.com/cilium/cilium/pkg/maps/policymap/fake"
	"github.com/cilium/cilium/pkg/maps/subnet"
	"github.com/cilium/cilium/pkg/metrics"
	monitorAgent "github.com/cilium/cilium/pkg/monitor/agent"
	"github.com/cilium/cilium/pkg/option"
)

// newHive is the agent's own control plane on a fake datapath.
func newHive(c *config, creator *endpointCreator.EndpointCreator) *hive.Hive {
	h := hive.New(
		kubeCell(c),
		cell.Provide(
			func() (_ statedbReconciler.Reconciler[*reconciler.DesiredRoute]) { return nil },
			func() cni.CNIConfigManager { return &fakecni.FakeCNIConfigManager{} },
			ctmap.NewFakeGCRunner,
			func() policymap.Factory { return memPolicyMaps{} },
			func() *loadbalancer.TestConfig { return &loadbalancer.TestConfig{} },
			func() statedb.RWTable[subnet.SubnetTableEntry] { return nil },
			func() bandwidth.Config { return bandwidth.Config{} },
			noBPFMapHandlers,
		),
		server.Cell,
		cell.Invoke(configureAPIServer),
		kvstore.Cell(kvstore.DisabledBackendName),
		fakeDatapath.Cell,
		cell.DecorateAll(func(lxcmap.Map) lxcmap.Map { return memLXCMap{} }),
		// As root these two would open real BPF maps.
		cell.DecorateAll(func() lbmaps.LBMaps { return lbmaps.NewFakeLBMaps() }),
		cell.DecorateAll(func() lbmaps.SkipLBMap { return nil }),
		neighbor.ForwardableIPCell,
		reconciler.TableCell,
		cell.Provide(neighbor.NewCommonTestConfig(true, false, 100)),
		prefilter.Cell,
		monitorAgent.Cell,
		metrics.Cell,
		store.Cell,
		dial.ServiceResolverCell,
		cmd.ControlPlane,
		cell.Invoke(func(_ legacy.DaemonInitialization, ec endpointCreator.EndpointCreator) { *creator = ec }),
	)
	hive.AddConfigOverride(h, func(d *datapathTables.DirectRoutingDeviceConfig) { d.DirectRoutingDevice = "test0" })
	return h
}

// configureAPIServer mirrors the unexported function of daemon/cmd, with fakeEndpoints in front.
func configureAPIServer(o *option.DaemonConfig, s *server.Server, spec *server.Spec, log *slog.Logger) {
	s.EnabledListeners = []string{"unix"}
	s.SocketPath = o.SocketPath
	s.ReadTimeout, s.WriteTimeout = 60*time.Second, 60*time.Second
	api.DisableAPIs(log, spec.DeniedAPIs, s.GetAPI().AddMiddlewareFor)
	s.ConfigureAPI()
	s.SetHandler(fakeEndpoints(s.GetHandler()))
}

// fakeEndpoints marks each endpoint that is PUT as one without BPF programs. Without the mark its DELETE
// answers 206, for want of the global policy map; a body with properties of its own, even {}, is not marked.
// Bodies that are no JSON object stay as they are.
func fakeEndpoints(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.Body != nil {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			var m map[string]json.RawMessage
			if json.Unmarshal(b, &m) == nil && m != nil && m["properties"] == nil {
				m["properties"] = json.RawMessage(`{"` + endpointTypes.PropertyFakeEndpoint + `":true}`)
				b, _ = json.Marshal(m)
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		}
		next.ServeHTTP(w, r)
	})
}

// memPolicyMaps gives every endpoint a policy map in memory.
type memPolicyMaps struct{}

func (memPolicyMaps) OpenEndpoint(uint16) (policymap.PolicyMap, error) {
	return fakePolicyMap.NewFakePolicyMap(), nil
}
func (memPolicyMaps) RemoveEndpoint(uint16) error { return nil }
func (memPolicyMaps) PolicyMaxEntries() int       { return 1024 }
func (memPolicyMaps) StatsMaxEntries() int        { return 1024 }

// memLXCMap replaces the BPF endpoint map.
type memLXCMap struct{}

func (memLXCMap) WriteEndpoint(lxcmap.EndpointFrontend) error                        { return nil }
func (memLXCMap) SyncHostEntry(netip.Addr) (bool, error)                             { return false, nil }
func (memLXCMap) DeleteEntry(netip.Addr) error                                       { return nil }
func (memLXCMap) DeleteElement(*slog.Logger, lxcmap.EndpointFrontend) (errs []error) { return nil }
func (memLXCMap) Dump(map[string][]string) error                                     { return nil }
func (memLXCMap) DumpToMap() (map[netip.Addr]lxcmap.EndpointInfo, error)             { return nil, nil }

type mapHandlers struct {
	cell.Out

	List   restdaemon.GetMapHandler
	Get    restdaemon.GetMapNameHandler
	Events restdaemon.GetMapNameEventsHandler
	Nodes  restdaemon.GetNodeIdsHandler
}

// noBPFMapHandlers stands for the handlers that the datapath provides.
func noBPFMapHandlers() mapHandlers {
	return mapHandlers{
		List: restdaemon.GetMapHandlerFunc(func(restdaemon.GetMapParams) middleware.Responder {
			return restdaemon.NewGetMapOK().WithPayload(&models.BPFMapList{})
		}),
		Get: restdaemon.GetMapNameHandlerFunc(func(restdaemon.GetMapNameParams) middleware.Responder {
			return restdaemon.NewGetMapNameNotFound()
		}),
		Events: restdaemon.GetMapNameEventsHandlerFunc(func(restdaemon.GetMapNameEventsParams) middleware.Responder {
			return restdaemon.NewGetMapNameEventsNotFound()
		}),
		Nodes: restdaemon.GetNodeIdsHandlerFunc(func(restdaemon.GetNodeIdsParams) middleware.Responder {
			return restdaemon.NewGetNodeIdsOK()
		}),
	}
}

func unixTransport(socket string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
}
