package main

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

type etcd struct {
	server *embed.Etcd
	url    string
	tmp    string
}

// startEtcd runs one member that its clients reach over a unix socket; nobody uses its random peer port.
func startEtcd(dataDir string) (_ *etcd, err error) {
	e := &etcd{}
	sockDir := dataDir
	if len(sockDir) > 90 { // sun_path is 108 bytes
		if sockDir, err = os.MkdirTemp("", "cp-etcd-"); err != nil {
			return nil, err
		}
		e.tmp = sockDir
	}
	sock := filepath.Join(sockDir, "etcd.sock")
	_ = os.Remove(sock)
	e.url = "unix://" + sock
	c := embed.NewConfig()
	c.Dir = filepath.Join(dataDir, "etcd")
	c.TickMs, c.ElectionMs = 10, 100 // one member: elect itself at once
	c.LogLevel = "warn"
	c.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration // 0 would log every request
	c.UnsafeNoFsync = true
	c.EnableGRPCGateway = false
	wal.SegmentSizeBytes = 4 << 20 // two files of this size are laid out at the start, 64 MB each by default
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	// The advertised client URL must be host:port, though nobody uses it.
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{{Scheme: "unix", Path: sock}}, []url.URL{peer}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	if e.server, err = embed.StartEtcd(c); err != nil {
		return nil, err
	}
	select {
	case <-e.server.Server.ReadyNotify():
		return e, nil
	case err := <-e.server.Err():
		return nil, err
	case <-time.After(time.Minute):
		return nil, errors.New("not ready in a minute")
	}
}

func (e *etcd) stop() {
	e.server.Close()
	if e.tmp != "" {
		_ = os.RemoveAll(e.tmp)
	}
}
