package clusterinformers

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
)

const (
	filePoll     = 2 * time.Second // between looks at the files
	identifyMost = 30 * time.Second
	identifyTime = 5 * time.Second // for one attempt
)

// local follows members whose credentials are files of federator's own: the
// kubeconfig of a laptop, the service account of a pod. It reads the files
// again when they change and learns each member's UID from the member. One
// goroutine, run, owns its state; one more per member asks for the UID.
type local struct {
	network Network
	log     *slog.Logger
	load    func() loaded
	own     bool // the kubeconfigs are a person's own

	members map[string]*localMember
	answers chan answer
	asking  sync.WaitGroup
}

// loaded is what the files say. The members are always the same: one whose
// credentials have gone is refused, not left out.
type loaded struct {
	members []candidate
	files   []string // that it came from: when one changes, all is loaded again
}

type candidate struct {
	name       string
	kubeconfig []byte
	refused    *Refusal // instead of a kubeconfig
	warnings   []string // what is done for it that is done for no other kubeconfig
}

// localMember is a member and what is known of it.
type localMember struct {
	spec    Spec
	newest  candidate
	doubted bool // its credentials were missing at the last look, for the first time
	stop    context.CancelFunc
	asked   int // number of the kubeconfig that is being asked about
	warned  []string
}

// answer is what came of asking a member who it is.
type answer struct {
	name    string
	asked   int
	uid     string
	refused *Refusal
}

// run implements Source.Run. It first calls set when every member is known,
// refused or has been asked once in vain.
func (l *local) run(ctx context.Context, set func([]Spec)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.asking.Wait()
	defer cancel()
	l.members, l.answers = map[string]*localMember{}, make(chan answer)
	var read []string
	var stamps []stamp
	tick := time.NewTicker(filePoll)
	defer tick.Stop()
	for look, again := true, true; ; {
		changed := false
		if look && (again || !slices.Equal(stamps, stat(read))) {
			// The stamps are older than what is read: a write in between shows
			// at the next look. Files that come into play only now have no
			// stamp yet, and so are loaded once more.
			stamps = stat(read)
			now := l.load()
			again = l.take(ctx, now.members) || !slices.Equal(read, now.files)
			read, changed = now.files, true
		}
		if changed && l.told() {
			set(l.view())
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-l.answers:
			look = false
			if l.hear(a) && l.told() {
				set(l.view())
			}
		case <-tick.C:
			look = true
		}
	}
}

// told reports whether there is something to say of every member.
func (l *local) told() bool {
	for _, m := range l.members {
		if m.spec.Refused != nil && m.spec.Refused.Reason == Connecting {
			return false
		}
	}
	return true
}

// take acts on newly read credentials and reports whether it wants another look
// before it believes them.
func (l *local) take(ctx context.Context, now []candidate) (again bool) {
	for _, c := range now {
		m := l.members[c.name]
		if m == nil {
			m = &localMember{spec: Spec{Name: c.name, Trusted: true, Own: l.own, Refused: refuse(Connecting, "the cluster has not said who it is yet")}}
			l.members[c.name] = m
		} else if bytes.Equal(m.newest.kubeconfig, c.kubeconfig) && sameRefusal(m.newest.refused, c.refused) && slices.Equal(m.newest.warnings, c.warnings) {
			m.doubted = false
			continue
		}
		// A file is often written in place: for a moment it is empty. What is
		// gone has to be gone twice.
		if c.refused != nil && m.newest.kubeconfig != nil && !m.doubted {
			m.doubted, again = true, true
			continue
		}
		m.doubted = false
		l.adopt(ctx, m, c)
	}
	return again
}

// adopt has a member's newest credentials judged, and the member asked who it
// is.
func (l *local) adopt(ctx context.Context, m *localMember, c candidate) {
	if m.stop != nil {
		m.stop()
	}
	m.newest, m.stop = c, nil
	m.asked++
	refused := c.refused
	if refused == nil {
		_, refused = parseKubeconfig(c.kubeconfig, l.own)
	}
	if refused != nil {
		m.spec.Refused = refused
		l.log.Warn("member is refused", "member", c.name, "reason", refused.Reason, "detail", refused.Message)
		return
	}
	for _, warning := range c.warnings {
		if !slices.Contains(m.warned, warning) { // as it is after each rotation of a file
			l.log.Warn("a context is followed as its kubeconfig says", "member", c.name, "detail", warning)
		}
	}
	m.warned = c.warnings
	ask, stop := context.WithCancel(ctx)
	m.stop = stop
	number := m.asked
	l.asking.Go(func() { l.identify(ask, c, number) })
}

// hear takes an answer in and reports whether the view is another.
func (l *local) hear(a answer) bool {
	m := l.members[a.name]
	if a.asked != m.asked {
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
		l.log.Warn("member cannot be identified", "member", a.name, "reason", a.refused.Reason, "detail", a.refused.Message)
	}
	m.spec.Refused = a.refused
	return true
}

// identify asks a member for the UID of its kube-system until it answers.
func (l *local) identify(ctx context.Context, c candidate, number int) {
	for delay := 500 * time.Millisecond; ; delay = min(2*delay, identifyMost) {
		a := answer{name: c.name, asked: number}
		var err error
		if a.uid, err = l.clusterUID(ctx, c.kubeconfig); err != nil {
			a.refused = unidentified(err)
		}
		select {
		case l.answers <- a:
		case <-ctx.Done():
			return
		}
		if a.uid != "" || pause(ctx, delay/2+rand.N(delay)) != nil {
			return
		}
	}
}

func (l *local) clusterUID(ctx context.Context, kubeconfig []byte) (string, error) {
	config, refusal := parseKubeconfig(kubeconfig, l.own)
	if refusal != nil {
		return "", refusal
	}
	client, err := newTransport(config, transportOptions{Network: l.network, Trusted: true})
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, identifyTime)
	defer cancel()
	uid, err := newAccess(config, client).clusterUID(ctx, "")
	if err == nil && uid == "" {
		err = errors.New("namespace kube-system has no UID")
	}
	return uid, err
}

// unidentified says why a member did not tell its UID.
func unidentified(err error) *Refusal {
	if r := asRefusal(err); r != nil {
		return r
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return refuse(Unauthorized, "the cluster does not accept the credentials: %v", err)
	case apierrors.IsForbidden(err):
		return refuse(Unauthorized, "namespace kube-system, whose UID tells the cluster, may not be read: %v", err)
	}
	return refuse(contactReason(err), "%v", err)
}

// view returns the specs by name.
func (l *local) view() []Spec {
	view := make([]Spec, 0, len(l.members))
	for _, name := range slices.Sorted(maps.Keys(l.members)) {
		view = append(view, l.members[name].spec)
	}
	return view
}

func sameRefusal(a, b *Refusal) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// stamp tells whether a file has changed.
type stamp struct {
	modified time.Time
	size     int64
}

func stat(files []string) []stamp {
	stamps := make([]stamp, len(files))
	for i, f := range files {
		if info, err := os.Stat(f); err == nil { // a missing file has the zero stamp
			stamps[i] = stamp{info.ModTime(), info.Size()}
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
	data, err := io.ReadAll(io.LimitReader(f, maxKubeconfig+1))
	if err == nil && len(data) > maxKubeconfig {
		err = fmt.Errorf("%s has more than %d bytes", path, maxKubeconfig)
	}
	return data, err
}

// inline replaces a file's path by its contents, which go before contents that
// are given as well. The path is added to files.
func inline(path *string, contents *[]byte, files *[]string) error {
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
