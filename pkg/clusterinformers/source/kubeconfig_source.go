package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

const (
	filePollInterval = 2 * time.Second // between looks at the files
	maxIdentifyDelay = 30 * time.Second
	identifyTimeout  = 5 * time.Second // for one attempt
)

// kubeconfigSource has members whose credentials are files of federator's own: the
// kubeconfig of a laptop, the service account of a pod. It reads the files
// again when they change and learns each member's UID from the member. One
// goroutine, run, owns its state; one more per member gets the UID.
type kubeconfigSource struct {
	network connection.Network
	log     *slog.Logger
	load    func() loadResult
	own     bool // the kubeconfigs are a person's own

	members     map[string]*fileMember
	results     chan identification
	identifying sync.WaitGroup
}

// loadResult is what the files say. The members are always the same: one whose
// credentials have gone is refused, not left out.
type loadResult struct {
	members []credentials
	files   []string // that it came from: when one changes, all is loaded again
}

type credentials struct {
	name       string
	kubeconfig []byte
	refused    *connection.Refusal // instead of a kubeconfig
	warnings   []string            // what is done for it that is done for no other kubeconfig
}

// fileMember is a member and what is known of it.
type fileMember struct {
	spec        clusterinformers.Spec
	newest      credentials
	missingOnce bool // its credentials were missing at the last look, for the first time
	stop        context.CancelFunc
	attempt     int // number of the kubeconfig whose member is being identified
	warned      []string
}

// identification is the result of identifying a member.
type identification struct {
	name    string
	attempt int
	uid     string
	refused *connection.Refusal
}

// run implements Source.Run. It first calls set when every member is known,
// refused or could not be identified once.
func (l *kubeconfigSource) run(ctx context.Context, set func(clusterinformers.View)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.identifying.Wait()
	defer cancel()
	l.members, l.results = map[string]*fileMember{}, make(chan identification)
	var read []string
	var stamps []fileStamp
	tick := time.NewTicker(filePollInterval)
	defer tick.Stop()
	for look, again := true, true; ; {
		changed := false
		if look && (again || !slices.Equal(stamps, stampsOf(read))) {
			// The stamps are older than what is read: a write in between shows
			// at the next look. Files that come into play only now have no
			// stamp yet, and so are loaded once more.
			stamps = stampsOf(read)
			now := l.load()
			again = l.update(ctx, now.members) || !slices.Equal(read, now.files)
			read, changed = now.files, true
		}
		if changed && l.allTried() {
			set(clusterinformers.View{Members: l.view()})
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-l.results:
			look = false
			if l.identified(a) && l.allTried() {
				set(clusterinformers.View{Members: l.view()})
			}
		case <-tick.C:
			look = true
		}
	}
}

// allowed is what the kubeconfigs may ask for beyond the rules.
func (l *kubeconfigSource) allowed() memberclient.Allowed {
	if l.own {
		return memberclient.Own()
	}
	return memberclient.Allowed{}
}

// allTried reports whether there is something to say of every member.
func (l *kubeconfigSource) allTried() bool {
	for _, m := range l.members {
		if m.spec.Refused != nil && m.spec.Refused.Reason == connection.Connecting {
			return false
		}
	}
	return true
}

// update acts on newly read credentials and reports whether the files must be
// read again before it believes them.
func (l *kubeconfigSource) update(ctx context.Context, now []credentials) (again bool) {
	for _, c := range now {
		m := l.members[c.name]
		if m == nil {
			m = &fileMember{spec: clusterinformers.Spec{Name: c.name, Trusted: true, Own: l.own, Refused: connection.Refuse(connection.Connecting, "the cluster has not been identified yet")}}
			l.members[c.name] = m
		} else if bytes.Equal(m.newest.kubeconfig, c.kubeconfig) && sameRefusal(m.newest.refused, c.refused) && slices.Equal(m.newest.warnings, c.warnings) {
			m.missingOnce = false
			continue
		}
		// A file is often written in place: for a moment it is empty. What is
		// gone has to be gone twice.
		if c.refused != nil && m.newest.kubeconfig != nil && !m.missingOnce {
			m.missingOnce, again = true, true
			continue
		}
		m.missingOnce = false
		l.use(ctx, m, c)
	}
	return again
}

// use checks a member's newest credentials, and starts to identify the member.
func (l *kubeconfigSource) use(ctx context.Context, m *fileMember, c credentials) {
	if m.stop != nil {
		m.stop()
	}
	m.newest, m.stop = c, nil
	m.attempt++
	refused := c.refused
	if refused == nil {
		_, refused = memberclient.ParseKubeconfig(c.kubeconfig, l.allowed())
	}
	if refused != nil {
		m.spec.Refused = refused
		l.log.Warn("member refused", "member", c.name, "reason", refused.Reason, "detail", refused.Message)
		return
	}
	for _, warning := range c.warnings {
		if !slices.Contains(m.warned, warning) { // as it is after each rotation of a file
			l.log.Warn("kubeconfig context accepted with a warning", "member", c.name, "detail", warning)
		}
	}
	m.warned = c.warnings
	ask, stop := context.WithCancel(ctx)
	m.stop = stop
	number := m.attempt
	l.identifying.Go(func() { l.identify(ask, c, number) })
}

// identified takes an answer in and reports whether the view is another.
func (l *kubeconfigSource) identified(a identification) bool {
	m := l.members[a.name]
	if a.attempt != m.attempt {
		return false // about older credentials
	}
	if a.uid != "" {
		m.stop()
		m.spec.UID, m.spec.Kubeconfig, m.spec.Refused = a.uid, m.newest.kubeconfig, nil
		return true
	}
	if m.spec.Refused == nil || sameRefusal(m.spec.Refused, a.refused) {
		// Older credentials are in use until the newer ones are known to lead
		// to a cluster.
		return false
	}
	if m.spec.Refused.Reason != a.refused.Reason {
		l.log.Warn("identifying the member failed", "member", a.name, "reason", a.refused.Reason, "detail", a.refused.Message)
	}
	m.spec.Refused = a.refused
	return true
}

// identify requests from a member the UID of its kube-system until it answers.
func (l *kubeconfigSource) identify(ctx context.Context, c credentials, number int) {
	for delay := 500 * time.Millisecond; ; delay = min(2*delay, maxIdentifyDelay) {
		a := identification{name: c.name, attempt: number}
		var err error
		if a.uid, err = l.clusterUID(ctx, c.kubeconfig); err != nil {
			a.refused = identityRefusal(err)
		}
		select {
		case l.results <- a:
		case <-ctx.Done():
			return
		}
		if a.uid != "" || sleep.For(ctx, delay/2+rand.N(delay)) != nil {
			return
		}
	}
}

func (l *kubeconfigSource) clusterUID(ctx context.Context, kubeconfig []byte) (string, error) {
	config, refusal := memberclient.ParseKubeconfig(kubeconfig, l.allowed())
	if refusal != nil {
		return "", refusal
	}
	client, err := memberclient.NewHTTPClient(config, memberclient.TransportOptions{Network: l.network, Trusted: true})
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	uid, err := memberclient.New(config, client).ClusterUID(ctx, "")
	if err == nil && uid == "" {
		err = errors.New("namespace kube-system has no UID")
	}
	return uid, err
}

// identityRefusal returns why the UID of a member could not be read.
func identityRefusal(err error) *connection.Refusal {
	if r := connection.AsRefusal(err); r != nil {
		return r
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return connection.Refuse(connection.Unauthorized, "the cluster does not accept the credentials: %v", err)
	case apierrors.IsForbidden(err):
		return connection.Refuse(connection.Unauthorized, "namespace kube-system, whose UID identifies the cluster, cannot be read: %v", err)
	}
	return connection.Refuse(memberclient.ReasonFor(err), "%v", err)
}

// view returns the specs by name.
func (l *kubeconfigSource) view() []clusterinformers.Spec {
	view := make([]clusterinformers.Spec, 0, len(l.members))
	for _, name := range slices.Sorted(maps.Keys(l.members)) {
		view = append(view, l.members[name].spec)
	}
	return view
}

func sameRefusal(a, b *connection.Refusal) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// fileStamp shows whether a file has changed.
type fileStamp struct {
	modified time.Time
	size     int64
}

func stampsOf(files []string) []fileStamp {
	stamps := make([]fileStamp, len(files))
	for i, f := range files {
		if info, err := os.Stat(f); err == nil { // a missing file has the zero stamp
			stamps[i] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, memberclient.MaxKubeconfig+1))
	if err == nil && len(data) > memberclient.MaxKubeconfig {
		err = fmt.Errorf("%s has more than %d bytes", path, memberclient.MaxKubeconfig)
	}
	return data, err
}

// inlineFile replaces a file's path by its contents, which go before contents that
// are given as well. The path is added to files.
func inlineFile(path *string, contents *[]byte, files *[]string) error {
	if *path == "" {
		return nil
	}
	*files = append(*files, *path)
	data, err := readFile(*path)
	if err != nil {
		return err
	}
	*path, *contents = "", data
	return nil
}
