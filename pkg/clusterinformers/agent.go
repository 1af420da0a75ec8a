package clusterinformers

import (
	"context"
	"net"

	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// Agents has the connections that the agents of members have opened.
type Agents interface {
	// DialAgent returns a connection to the agent of a member, by name and UID, over which the agent serves HTTP/2.
	// The agent was verified to be that of the member. Close does not wait for the agent.
	DialAgent(ctx context.Context, member, uid string) (net.Conn, error)
}

// agentPings is how many times as long as usual nothing may come of an agent until it is asked for an answer: an answer
// every few seconds is more than all else that comes of a member that is idle.
const agentPings = 3

// byAgent reports whether the member is reached by its agent.
func (mb *member) byAgent() bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	return mb.usesAgent
}

// applyAgent has the member reached by its agent.
func (mb *member) applyAgent(spec Spec) {
	agents := mb.manager.opts.Agents
	switch {
	case mb.byAgent():
		return
	case agents == nil:
		mb.setUsedKubeconfig(nil)
		mb.conn.setClient(nil, connection.Refuse(connection.NoAgents, "the member has an agent, and this federator listens for none: agents.listen of the configuration is empty"))
		return
	}
	opts := mb.transportOptions(spec)
	opts.PingInterval *= agentPings
	client, err := memberclient.NewByAgent(func(ctx context.Context) (net.Conn, error) {
		return agents.DialAgent(ctx, spec.Name, spec.UID)
	}, opts)
	if err != nil {
		mb.setUsedKubeconfig(nil)
		mb.conn.setClient(nil, connection.Refuse(connection.NoAgents, "%v", err))
		return
	}
	mb.stock.Store(nil)
	mb.manager.servers.Put(mb, "") // nobody but the agent knows
	mb.mu.Lock()
	mb.usedKubeconfig, mb.usesAgent = nil, true
	mb.mu.Unlock()
	mb.conn.setClient(client, nil)
}

// transportOptions are those of all clients that the member is read with.
func (mb *member) transportOptions(spec Spec) memberclient.TransportOptions {
	opts := &mb.manager.opts
	return memberclient.TransportOptions{
		Network: opts.Network, Trusted: spec.Trusted,
		PingInterval: opts.PingInterval, PingTimeout: opts.PingTimeout,
		Prolong: mb.manager.lateness.Prolong,
		OnDial:  mb.conn.onDial, OnRead: mb.conn.onRead,
		Stock: opts.StockTransport, OnStock: mb.goneStock,
		OnViolation: mb.violatedHTTP2,
	}
}
