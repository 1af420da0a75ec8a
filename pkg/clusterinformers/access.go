package clusterinformers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// Errors of Writer and Review that callers branch on.
var (
	// ErrUnknownMember is returned for a member that no source names.
	ErrUnknownMember = errors.New("unknown member")
	// ErrUnknownKind is returned for a kind of which nothing is held of the members that are asked for.
	ErrUnknownKind = errors.New("nothing is held of it")
	// ErrUnreachable is returned for a member that is out of reach or refused.
	ErrUnreachable = errors.New("member is unreachable")
	// ErrReadOnly is returned for a member that is never written to.
	ErrReadOnly = errors.New("member is read-only")
	// ErrPaused is returned for a member whose Cluster is paused.
	ErrPaused = errors.New("writes to the member are paused")
	// ErrFrozen is returned for a member whose Cluster is frozen.
	ErrFrozen = errors.New("writes to the member are frozen")
	// ErrWritesRefused is returned for a member whose credentials for writes are refused.
	ErrWritesRefused = errors.New("writes to the member are refused")
	// ErrUnaudited is returned for a member of which something is held that an earlier process has
	// held, and that was not compared with what the member has since.
	ErrUnaudited = errors.New("it is not known what is in the member")
	// ErrNotServed is returned for a kind that a member does not serve, or not
	// at that version.
	ErrNotServed = catalog.ErrNotServed
)

// Writer returns how objects of a kind are written in a member, with federator's
// credentials there: a client for the kind's group and version, the resource as
// it is in paths, and whether it has namespaces. apiVersion, such as "apps/v1",
// is that of the objects; "" is the one that the kind is held at. The client
// takes and gives bytes: it knows no types beyond its library's. Its credentials
// are those of now, so it is for one write and its retries.
func (m *Manager) Writer(member string, kind aggregate.Kind, apiVersion string) (client rest.Interface, resource string, namespaced bool, err error) {
	mb, err := m.lookup(member)
	if err != nil {
		return nil, "", false, err
	}
	if err := mb.checkWritable(); err != nil {
		return nil, "", false, err
	}
	a, err := mb.writeClient()
	if err != nil {
		return nil, "", false, err
	}
	r, err := m.catalog.Find(member, kind, apiVersion)
	if err != nil {
		return nil, "", false, fmt.Errorf("member %q: %w", member, err)
	}
	client, err = a.REST(r.GVR.GroupVersion())
	if err != nil {
		return nil, "", false, fmt.Errorf("member %q: %w", member, err)
	}
	return client, r.GVR.Resource, r.Namespaced, nil
}

// CheckWritable returns why nothing may be written to a member at the moment although it
// is read: ErrReadOnly, ErrPaused, ErrFrozen or ErrWritesRefused, or nil. A client that Writer has returned before continues to
// work, so writers call it right before each write.
func (m *Manager) CheckWritable(member string) error {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return nil // Writer says that it is not followed
	}
	return mb.checkWritable()
}

func (mb *member) checkWritable() error {
	if mb.currentSpec().ReadOnly {
		return fmt.Errorf("member %q: %w", mb.name, ErrReadOnly)
	}
	why := mb.hold()
	switch {
	case why == nil:
		return nil
	case why.Reason == connection.Paused:
		return fmt.Errorf("member %q: %w: %s", mb.name, ErrPaused, why.Message)
	case why.Reason == connection.WritesRefused:
		return fmt.Errorf("member %q: %w: %s", mb.name, ErrWritesRefused, why.Message)
	default:
		return fmt.Errorf("member %q: %w: %s", mb.name, ErrFrozen, why.Message)
	}
}

// WritesHeld returns why nothing is written to a member at the moment, "" when it may be.
func (m *Manager) WritesHeld(member string) string {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return ""
	}
	if mb.currentSpec().ReadOnly {
		return ErrReadOnly.Error()
	}
	if why := mb.hold(); why != nil {
		return why.Message
	}
	return ""
}

// Away returns how many members of the fleet are out of reach or refused, and how many there
// are.
func (m *Manager) Away() (away, members int) {
	for _, mb := range m.currentMembers() {
		spec := mb.currentSpec()
		if !spec.inFleet() || spec.ReadOnly {
			continue
		}
		members++
		if contact, _, _, _ := mb.conn.state(); contact != connection.Connected {
			away++
		}
	}
	return away, members
}

// ServerOf returns the URL of a member's API server, as its kubeconfig has it, "" where it has
// none or another member has the same.
func (m *Manager) ServerOf(member string) string {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	return m.servers.Unique(mb)
}

// CheckContact returns why it is not known what is in a member now: it does not answer, or something
// that an earlier process has held was not audited yet. It is nil when it is known.
func (m *Manager) CheckContact(member string) error {
	mb, err := m.lookup(member)
	if err != nil {
		return err
	}
	if contact, _, _, _ := mb.conn.state(); contact != connection.Connected {
		return fmt.Errorf("member %q is away: its connection is %s", member, contact)
	}
	return mb.checkAudited()
}

// WritesWith names the credentials that a member is written with, "" where nobody knows.
func (m *Manager) WritesWith(member string) string {
	mb, err := m.lookup(member)
	if err != nil {
		return ""
	}
	spec := mb.currentSpec()
	return spec.writesWith()
}

// hold returns why the member is not written to now, nil when it may be.
func (mb *member) hold() *connection.Refusal {
	spec := mb.currentSpec()
	if why := spec.Hold.At(mb.manager.opts.Clock()); why != nil || spec.Write == nil {
		return why
	}
	w := mb.writer.Load()
	if !w.isOf(spec) {
		return connection.Refuse(connection.WritesRefused, "%s is not in use yet", spec.Write.Credentials)
	}
	if why := w.problem(mb.knownUID()); why != nil {
		return connection.Refuse(connection.WritesRefused, "%s is refused, and no other is used instead: %v", spec.Write.Credentials, why)
	}
	return nil
}

// writer writes to a member with credentials that it is not read with.
type writer struct {
	kubeconfig, reader []byte // what it is made from
	client             *memberclient.Client
	refused            *connection.Refusal      // why the kubeconfig is; nil: it is not
	otherCluster       atomic.Pointer[mismatch] // nil: none is known
}

// mismatch says that credentials do not lead to the cluster with a UID.
type mismatch struct {
	uid string
	why *connection.Refusal
}

// problem returns why it is not used for the cluster with a UID, nil when it is.
func (w *writer) problem(uid string) *connection.Refusal {
	if w.refused != nil {
		return w.refused
	}
	if m := w.otherCluster.Load(); m != nil && m.uid == uid {
		return m.why
	}
	return nil
}

// isOf reports whether it is made from a spec.
func (w *writer) isOf(spec Spec) bool {
	return w != nil && spec.Write != nil && bytes.Equal(w.kubeconfig, spec.Write.Kubeconfig) && bytes.Equal(w.reader, spec.Kubeconfig)
}

// end lets the connections go. Requests under way go on. nil is no writer.
func (w *writer) end() {
	if w != nil && w.client != nil {
		w.client.CloseIdleConnections()
	}
}

// applyWriteAccess exchanges the credentials for writes when a spec has others.
func (mb *member) applyWriteAccess(spec Spec) {
	old := mb.writer.Load()
	switch {
	case spec.Write == nil:
		mb.writer.Store(nil)
		old.end()
		return
	case old.isOf(spec):
		return
	}
	w := &writer{kubeconfig: spec.Write.Kubeconfig, reader: spec.Kubeconfig}
	if w.refused = mb.openWriter(w, spec); w.refused != nil {
		mb.log.Warn("credentials for writes refused", "credentials", spec.Write.Credentials, "reason", w.refused.Reason, "detail", w.refused.Message)
	}
	mb.writer.Store(w)
	old.end()
}

func (mb *member) openWriter(w *writer, spec Spec) *connection.Refusal {
	cfg, refusal := memberclient.ParseKubeconfig(w.kubeconfig, memberclient.Allowed{})
	if refusal != nil {
		return refusal
	}
	reader, refusal := memberclient.ParseKubeconfig(w.reader, spec.allowed())
	if refusal != nil {
		return refusal
	}
	var err error
	w.client, err = memberclient.NewWriter(cfg, reader, memberclient.TransportOptions{
		Network: mb.manager.opts.Network, Trusted: spec.Trusted,
		PingInterval: mb.manager.opts.PingInterval, PingTimeout: mb.manager.opts.PingTimeout, Prolong: mb.manager.lateness.Prolong,
		Stock: true, // no watches
	}, mb.knownUID, func(uid string, why *connection.Refusal) {
		if before := w.otherCluster.Swap(&mismatch{uid, why}); before == nil || before.uid != uid {
			mb.log.Warn("credentials for writes refused", "credentials", spec.Write.Credentials, "reason", why.Reason, "detail", why.Message)
		}
	})
	if err != nil {
		return connection.Refuse(connection.InvalidKubeconfig, "%v", err)
	}
	return nil
}

// agentPings is how many times as long as usual nothing may come of an agent until it is asked for an answer, which costs
// more every few seconds than all else of a member that is idle.
const agentPings = 3

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
		OnViolation: mb.violatedHTTP2, Reader: mb.readerOf(spec),
	}
}

// knownUID is the UID of the cluster that is read, "" where it may not be known.
func (mb *member) knownUID() string {
	if uid := mb.clusterUID.Load(); uid != nil {
		return *uid
	}
	return ""
}

// writesWith names the credentials that the member is written with.
func (s *Spec) writesWith() string {
	switch {
	case s.ReadOnly:
		return ""
	case s.Write != nil:
		return s.Write.Credentials
	}
	return s.Credentials
}

// writeClient returns the client for writes, of a member that is within reach.
func (mb *member) writeClient() (*memberclient.Client, error) {
	a, err := mb.client()
	spec := mb.currentSpec()
	if err != nil || spec.Write == nil {
		return a, err
	}
	w := mb.writer.Load()
	if !w.isOf(spec) || w.problem(mb.knownUID()) != nil {
		return nil, fmt.Errorf("member %q: %w: %s is not in use", mb.name, ErrWritesRefused, spec.Write.Credentials)
	}
	return w.client, nil
}

// lookup returns the member of a name.
func (m *Manager) lookup(name string) (*member, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mb := m.members[name]; mb != nil {
		return mb, nil
	}
	return nil, fmt.Errorf("member %q: %w", name, ErrUnknownMember)
}

// client returns the access of now.
func (mb *member) client() (*memberclient.Client, error) {
	if a := mb.conn.current(); a != nil {
		return a, nil
	}
	_, reason, _, _ := mb.conn.state()
	return nil, fmt.Errorf("member %q: %w (%s)", mb.name, ErrUnreachable, cmp.Or(reason, connection.Connecting)) // a connection is tried before it is lost
}

// reviewTimeout bounds a member's answer: a caller waits for it.
const reviewTimeout = 5 * time.Second

// Review creates a SubjectAccessReview in a member, with federator's credentials there,
// and reports whether it is allowed. A member that is not connected,
// or that does not answer, is an error.
func (m *Manager) Review(ctx context.Context, member string, review *authorizationv1.SubjectAccessReview) (bool, error) {
	mb, err := m.lookup(member)
	if err != nil {
		return false, err
	}
	a, err := mb.client()
	if err != nil {
		return false, err
	}
	c, err := a.REST(authorizationv1.SchemeGroupVersion)
	if err != nil {
		return false, fmt.Errorf("member %q: %w", member, err)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	var answer authorizationv1.SubjectAccessReview
	err = c.Post().Resource("subjectaccessreviews").Body(review).MaxRetries(0).Do(ctx).Into(&answer)
	if err != nil {
		return false, fmt.Errorf("member %q: %s", member, message.Clip(err.Error()))
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}

// Audit audits kinds of members now, within the budget of audits. member is a name as in
// MemberQuery, "" for all members, and kind "" for all kinds. each is called with the result for every
// kind, or every namespace of it where only some are held, from one goroutine at a time.
func (m *Manager) Audit(ctx context.Context, member string, kind aggregate.Kind, each func(AuditResult)) error {
	q, known := MemberQuery{Name: member}, false
	replies, asked := make(chan AuditResult), 0
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, mb := range m.sortedMembers() {
		if !q.matches(&MemberStatus{Name: mb.name}) {
			continue
		}
		known = true
		own, n := mb.auditor.ask(kind)
		asked += n
		wg.Go(func() {
			defer mb.auditor.withdraw(own)
			for range n {
				r := AuditResult{Member: mb.name, Kind: kind, Outcome: outcomeNotSynced, Message: "the member has left"}
				select {
				case r = <-own:
				case <-mb.done:
				case <-ctx.Done():
					return
				}
				select {
				case replies <- r:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	if !known && member != "" {
		return fmt.Errorf("member %q: %w", member, ErrUnknownMember)
	}
	if asked == 0 && kind != "" {
		return fmt.Errorf("kind %q: %w", kind, ErrUnknownKind)
	}
	for range asked {
		select {
		case r := <-replies:
			each(r)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// ask has what is watched of a kind audited, of all kinds for "". It returns where so many results
// will come. What is held and not watched cannot be compared.
func (a *auditor) ask(kind aggregate.Kind) (results chan AuditResult, n int) {
	mb := a.member
	var all []*listWatch
	watched := map[aggregate.Kind]bool{}
	for _, r := range mb.runningInformers() {
		if watched[r.kind] = true; kind == "" || r.kind == kind {
			all = append(all, r.listWatches...)
		}
	}
	var others []aggregate.Kind
	for _, held := range mb.manager.opts.Index.Newest().KindsOf(mb.name) {
		if (kind == "" || held == kind) && !watched[held] {
			others = append(others, held)
		}
	}
	own := make(chan AuditResult, len(all)+len(others))
	for _, other := range others {
		own <- AuditResult{Member: mb.name, Kind: other, Outcome: outcomeNotSynced, Message: "it is not watched"}
	}
	a.mu.Lock()
	for _, p := range all {
		a.asked[p] = append(a.asked[p], own)
	}
	a.mu.Unlock()
	a.woken.Fire()
	return own, cap(own)
}

// withdraw takes back what was asked for and is not answered: nobody waits for it any more.
func (a *auditor) withdraw(results chan AuditResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, all := range a.asked {
		if all = slices.DeleteFunc(all, func(c chan<- AuditResult) bool { return c == results }); len(all) == 0 {
			delete(a.asked, p)
		} else {
			a.asked[p] = all
		}
	}
}
