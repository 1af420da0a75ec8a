package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/clusterinformers"
)

// agentServer is where the agents of members connect; of the zero value none do.
type agentServer struct {
	server   *hubside.Server
	listener net.Listener
}

// newAgentServer opens the listener. Nothing is served yet.
func newAgentServer(ctx context.Context, cfg *config.Config, log *slog.Logger, metrics prometheus.Registerer) (agentServer, error) {
	if cfg.Agents.Listen == "" {
		return agentServer{}, nil
	}
	hub, err := fleet.HubConfig(cfg, userAgent())
	if err != nil {
		return agentServer{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return agentServer{}, fmt.Errorf("agents: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.Agents.Listen)
	if err != nil {
		return agentServer{}, fmt.Errorf("agents.listen: %w", err)
	}
	s, err := hubside.New(hubside.Options{
		Hub: hub, Namespace: cfg.Policies.Namespace, Namespaces: cfg.Sources.Members.Namespaces, Listener: l, Hosts: cfg.Agents.Hosts,
		CertificateLife: cfg.Agents.CertificateLife, Process: host, Logger: log, Metrics: metrics,
	})
	if err != nil {
		l.Close()
		return agentServer{}, err
	}
	log.Info("listening", "server", "agents", "address", l.Addr().String())
	return agentServer{s, l}, nil
}

// dialer returns what dials members by their agents, nil where there are none.
func (a agentServer) dialer() clusterinformers.Agents {
	if a.server == nil {
		return nil
	}
	return a.server
}

// run serves until ctx is done.
func (a agentServer) run(ctx context.Context) error {
	if a.server == nil {
		return component.Idle(ctx)
	}
	return a.server.Run(ctx)
}

// close closes the listener of one that may not have run.
func (a agentServer) close() {
	if a.listener != nil {
		a.listener.Close()
	}
}
