package facts

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/policysource"
)

const (
	differencePath = Path + "difference"
	// differenceKept is how long what a process has found of a commit counts, and maxDifferences how many are kept.
	differenceKept = 10 * time.Minute
	maxDifferences = 256
)

// Differences are what processes find that a commit would change on their members. Each compares the commit when it comes
// to its gates, and asks the others: what it is on the fleet is their sum, and not known before all have compared it.
type Differences struct {
	fleet func() *intents.Fleet

	mu    sync.Mutex
	found map[compared]found
}

// compared is a commit of a source, by which its files are known.
type compared struct{ source, commit, path string }

type found struct {
	at time.Time
	policysource.Difference
}

// NewDifferences returns Differences of which nothing is known.
func NewDifferences(fleet func() *intents.Fleet) *Differences {
	return &Differences{fleet: fleet, found: map[compared]found{}}
}

// Sum returns the difference of a commit on the whole fleet, of which own is that on this process's members. Its error says
// which process has not compared it.
func (d *Differences) Sum(c policysource.Candidate, own policysource.Difference) (policysource.Difference, error) {
	of := compared{c.Source, c.Commit.Hash, c.Commit.Path}
	d.keep(of, own)
	fleet := d.fleet()
	if fleet == nil {
		return policysource.Difference{}, errors.New("it is not known which processes there are")
	}
	sum := own
	others := append(slices.Sorted(maps.Keys(fleet.Peers)), fleet.Processes...)
	slices.Sort(others)
	for _, id := range slices.Compact(others) {
		if id == fleet.Self {
			continue
		}
		peer, lives := fleet.Peers[id]
		if !lives {
			return policysource.Difference{}, fmt.Errorf("process %s is lost", id)
		}
		var theirs policysource.Difference
		query := url.Values{"source": {of.source}, "commit": {of.commit}, "path": {of.path}}
		if err := get(peer, differencePath+"?"+query.Encode(), nil, &theirs); err != nil {
			return policysource.Difference{}, fmt.Errorf("it has not been compared on all members: %w", err)
		}
		sum.Appeared += theirs.Appeared
		sum.Cleared += theirs.Cleared
		sum.Changed += theirs.Changed
		sum.Unknown += theirs.Unknown
		sum.Enforcement += theirs.Enforcement
	}
	return sum, nil
}

func (d *Differences) keep(of compared, own policysource.Difference) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, f := range d.found {
		if now.Sub(f.at) > differenceKept {
			delete(d.found, key)
		}
	}
	if len(d.found) < maxDifferences || d.found[of] != (found{}) {
		d.found[of] = found{now, own}
	}
}

// answer answers another process's Sum; false if this one has not compared the commit.
func (d *Differences) answer(r *http.Request) (policysource.Difference, bool) {
	query := r.URL.Query()
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.found[compared{query.Get("source"), query.Get("commit"), query.Get("path")}]
	return f.Difference, ok && time.Since(f.at) <= differenceKept
}
