package notifications

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/notify/delivery"
	"federator.dev/federator/pkg/policy"
)

// FactSource lists what goes on on the hub while it runs.
type FactSource interface {
	notify.Source
	Run(ctx context.Context) error
}

// Options configure a Controller. All but History, Directory, Others, Logger and Metrics are required.
type Options struct {
	Config    *rest.Config // of the hub
	Namespace string       // of Secrets
	Name      string       // of this process in statuses: of those that send one after another the same
	Origin    string       // of events: a URI reference that names this hub
	// History is what was recorded, and Directory has how far Notifications have come in it; nil and "": nothing is.
	History   delivery.Log
	Directory string
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	// Sends reports whether this process sends now.
	Sends func() bool
	// Others are the names of all processes that send; nil: it is this one alone. known is false where they are not known.
	Others func() (names []string, known bool)
	// Notified returns the FleetPolicies that name a Notification, and may; nil before they are known.
	Notified func(notification string) map[string]bool
	// State is that of the verdicts, nil before there is one; it also says which members are judged here, and has their labels.
	State func() *policy.State
	// Leads reports whether this process answers for what goes on on the hub, and Facts returns a source of that, which runs
	// while there are alerts to be sent.
	Leads   func() bool
	Facts   func() (FactSource, error)
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

func (o *Options) validate() error {
	if o.Config == nil || o.Namespace == "" || o.Name == "" || o.Origin == "" || o.Dial == nil || o.Sends == nil || o.Notified == nil || o.State == nil || o.Leads == nil || o.Facts == nil {
		return errors.New("notifications: Config, Namespace, Name, Origin, Dial, Sends, Notified, State, Leads and Facts are required")
	}
	if o.History != nil && o.Directory == "" {
		return errors.New("notifications: Directory is required with History")
	}
	return nil
}

const (
	lookEvery   = 5 * time.Second  // without a change
	secretEvery = 30 * time.Second // Secrets are read
	statusEvery = 30 * time.Second // the least time between statuses of which only numbers differ
	urgentEvery = 10 * time.Second // and of others: a sink that fails now and then is none of the hub's business
	hubTimeout  = 10 * time.Second
	requests    = 16 // to the hub at once
)

// Controller runs Notifications. Its Run alone uses what follows changed.
type Controller struct {
	opts     Options
	client   rest.Interface
	secrets  typedcorev1.SecretInterface
	informer cache.SharedIndexInformer
	metrics  *metrics
	changed  trigger.Trigger

	running map[string]*runner // by UID
	written map[string]written // by UID
}

// New returns a Controller; nothing is sent before Run.
func New(opts Options) (*Controller, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	config := rest.CopyConfig(opts.Config)
	config.QPS = -1 // it has few requests at once
	client, err := hub.NewRESTClient(config)
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	c := &Controller{
		opts: opts, client: client, secrets: core.CoreV1().Secrets(opts.Namespace), changed: trigger.New(), metrics: newMetrics(),
		running: map[string]*runner{}, written: map[string]written{},
	}
	watch := cache.NewListWatchFromClient(client, v1alpha1.Notifications, "", fields.Everything())
	c.informer = cache.NewSharedIndexInformer(watch, &v1alpha1.Notification{}, 0, cache.Indexers{})
	if _, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.changed.Fire() }, UpdateFunc: func(_, _ any) { c.changed.Fire() }, DeleteFunc: func(any) { c.changed.Fire() },
	}); err != nil {
		return nil, fmt.Errorf("notifications: %w", err)
	}
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(c.metrics); err != nil {
			return nil, fmt.Errorf("notifications: metrics: %w", err)
		}
	}
	return c, nil
}

// Run sends until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	if c.opts.Directory != "" {
		if err := os.MkdirAll(c.opts.Directory, 0o700); err != nil {
			return fmt.Errorf("notifications: %w", err)
		}
	}
	var watching sync.WaitGroup
	watching.Go(func() { c.informer.RunWithContext(ctx) })
	defer watching.Wait()
	defer c.stopAll()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if c.informer.HasSynced() {
			c.look(ctx)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.changed:
		case <-tick.C:
		}
	}
}

func (c *Controller) stopAll() {
	for _, r := range c.running {
		if r.work != nil {
			r.cancel() // all at once: each may be in the midst of a request
		}
	}
	for uid, r := range c.running {
		r.join()
		delete(c.running, uid)
	}
}

// look starts and stops what runs, so that it is what the Notifications say, and writes statuses. What is to end ends before the hub is asked for
// anything, and the hub is asked for several at once: one that is slow delays all of them together, not one after another.
func (c *Controller) look(ctx context.Context) {
	var all []*v1alpha1.Notification
	there := map[string]bool{}
	for _, o := range c.informer.GetStore().List() {
		if n, ok := o.(*v1alpha1.Notification); ok {
			all, there[string(n.UID)] = append(all, n), true
		}
	}
	c.end(all, there)
	if c.opts.Sends() {
		c.send(ctx, all)
	}
	c.removePositions(there)
}

// end ends what is not to run any more, and forgets it.
func (c *Controller) end(all []*v1alpha1.Notification, there map[string]bool) {
	ends := func(uid string) bool { return !there[uid] || !c.opts.Sends() }
	for uid, r := range c.running {
		if ends(uid) && r.work != nil {
			r.cancel() // all at once: each may be in the midst of a request
		}
	}
	for uid, r := range c.running {
		if ends(uid) {
			r.stop()
			delete(c.running, uid)
			c.metrics.remove(r.name)
		}
	}
	for uid := range c.written {
		if !there[uid] {
			delete(c.written, uid)
		}
	}
	for _, n := range all {
		if r := c.running[string(n.UID)]; r != nil && n.Spec.Suspend {
			r.stop()
		}
	}
}

// send has the Notifications sent.
func (c *Controller) send(ctx context.Context, all []*v1alpha1.Notification) {
	var begun []*v1alpha1.Notification
	for _, n := range all {
		uid := string(n.UID)
		r := c.running[uid]
		if r == nil {
			r = &runner{name: n.Name, notified: c.opts.Notified}
			c.running[uid] = r
			c.metrics.add(n.Name)
		}
		if r.active() || c.knows(n) {
			begun = append(begun, n)
		}
	}
	problems := make([]problem, len(begun))
	c.atOnce(len(begun), func(i int) { // a runner belongs to one of them
		if n := begun[i]; c.problem(n).reason == "" {
			problems[i] = c.readSecret(ctx, n, c.running[string(n.UID)])
		}
	})
	var due []dueStatus
	for i, n := range begun {
		r := c.running[string(n.UID)]
		why := c.configure(ctx, n, r, problems[i])
		if s := c.status(n, r, why); s.update != nil {
			due = append(due, s)
		}
	}
	c.atOnce(len(due), func(i int) { due[i].err = c.put(ctx, due[i].update) })
	for i := range due {
		c.wrote(&due[i])
	}
}

// knows reports whether it is known what a Notification selects: what is read before that is would be left out.
func (c *Controller) knows(n *v1alpha1.Notification) bool {
	if c.opts.Notified(n.Name) == nil {
		return false
	}
	for i := range n.Spec.Rules {
		if n.Spec.Rules[i].Members.Labels != nil {
			return c.opts.State() != nil // which has the labels of members
		}
	}
	return true
}

// atOnce calls f for each of n, some at a time, and returns when all have returned.
func (c *Controller) atOnce(n int, f func(int)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, requests)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			f(i)
		})
	}
	wg.Wait()
}

// removePositions removes the positions of Notifications that are gone.
func (c *Controller) removePositions(there map[string]bool) {
	if c.opts.Directory == "" {
		return
	}
	entries, err := os.ReadDir(c.opts.Directory)
	if err != nil {
		c.opts.Logger.Error("positions of Notifications cannot be listed", "error", err)
		return
	}
	for _, e := range entries {
		uid, _, _ := strings.Cut(e.Name(), ".")
		if there[uid] || !strings.Contains(e.Name(), positionExt) {
			continue
		}
		if err := os.Remove(filepath.Join(c.opts.Directory, e.Name())); err != nil {
			c.opts.Logger.Error("the position of a Notification that is gone cannot be removed", "error", err)
		}
	}
}

const positionExt = ".position"

// problem is why a Notification is not sent; the zero problem is none.
type problem struct{ reason, message string }

// problem says why a Notification is not sent whatever its Secret has.
func (c *Controller) problem(n *v1alpha1.Notification) problem {
	switch {
	case n.Spec.Suspend:
		return problem{v1alpha1.NotificationSuspended, "spec.suspend is true"}
	case n.Spec.Alertmanager == nil && c.opts.History == nil:
		return problem{v1alpha1.NotificationNoHistory, "federator records no history: persistence.directory is not set, or history.off is"}
	}
	return problem{}
}

// configure has the runner run what the Notification says. fault is what is wrong with its Secret.
func (c *Controller) configure(ctx context.Context, n *v1alpha1.Notification, r *runner, fault problem) problem {
	if why := c.problem(n); why.reason != "" {
		fault = why
	}
	if fault.reason != "" {
		r.stop()
		return fault
	}
	key := fmt.Sprintf("%d %s", n.Generation, r.secret.version)
	if r.key == key && !r.mayStart(time.Now()) {
		return r.problem()
	}
	if r.stop(); r.key != key {
		r.crashed, r.crashes = nil, 0
	}
	work, fault := c.build(n, r, r.secret)
	if fault.reason != "" {
		return fault
	}
	r.start(ctx, key, work, c.opts.Logger.With("notification", n.Name))
	return r.problem()
}
