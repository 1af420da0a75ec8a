package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/offline"
	"federator.dev/federator/pkg/policy"
)

// sourceFlags say where the objects come from that policies and queries are
// evaluated on: manifests, a saved snapshot, or clusters.
type sourceFlags struct {
	manifests []string
	member    string
	snapshot  string
	hub       bool
	timeout   time.Duration // of waiting for clusters; 0 is none
	live      memberFlags
}

func (f *sourceFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVarP(&f.manifests, "filename", "f", nil, "`[MEMBER=]PATH` of manifests: files, directories, or - for standard input")
	fs.StringVar(&f.member, "member", "", "`<namespace>/<name>` of the member of manifests that do not say (default manifests/default)")
	fs.StringVar(&f.snapshot, "snapshot", "", "`directory` that federator snapshot has written")
	fs.BoolVar(&f.hub, "hub", false, "follow the clusters of the Cluster API hub")
	f.live.register(fs)
	fs.Lookup("give-up-after").Usage = "when a member that has not synced is no longer waited for (default 30s)"
	fs.Lookup("log-level").Usage = "debug, info, warn or error (default warn)"
}

// opened is a fleet at one revision.
type opened struct {
	*aggregate.Snapshot
	revision aggregate.Revision // that it had where it comes from
	asOf     time.Time
	followed map[string]clusterinformers.MemberStatus // by name, of clusters
}

// wanted are the kinds that will be read.
type wanted struct {
	kinds []policy.KindRef // at a version where that matters
	every bool             // others, too
}

// names are the kinds without their versions, sorted.
func (w wanted) names() []aggregate.Kind {
	var out []aggregate.Kind
	for _, k := range w.kinds {
		out = append(out, k.Kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// open reads the fleet. Clusters are followed for what is wanted, where the flags
// leave that open.
func (f *sourceFlags) open(ctx context.Context, fs *pflag.FlagSet, want wanted, in io.Reader, stderr io.Writer) (*opened, error) {
	live := f.hub || fs.Changed("contexts") || fs.Changed("hub-kubeconfig") || fs.Changed("config")
	given := 0
	for _, is := range []bool{len(f.manifests) > 0, f.snapshot != "", live} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, errors.New("give one of --filename, --snapshot, and clusters (--contexts, --hub or --config)")
	}
	switch {
	case f.snapshot != "":
		saved, err := offline.LoadSnapshot(f.snapshot)
		if err != nil {
			return nil, err
		}
		return &opened{Snapshot: saved.Index.Snapshot(), revision: saved.Revision, asOf: saved.Taken}, nil
	case live:
		return f.follow(ctx, fs, want, stderr)
	}
	return f.read(want.names(), in)
}

// read reads manifests.
func (f *sourceFlags) read(kinds []aggregate.Kind, in io.Reader) (*opened, error) {
	fleet, err := offline.New(offline.Options{DefaultMember: f.member})
	if err != nil {
		return nil, err
	}
	for _, path := range f.manifests {
		member := f.member
		if m, p, ok := strings.Cut(path, "="); ok {
			if _, err := os.Stat(path); err != nil { // else it is a file with = in its name
				member, path = m, p
			}
		}
		if path == "-" {
			err = fleet.Add("standard input", in, member)
		} else {
			err = fleet.AddPath(path, member)
		}
		if err != nil {
			return nil, err
		}
	}
	index, err := fleet.Index(kinds)
	if err != nil {
		return nil, err
	}
	s := index.Snapshot()
	if fleet.Objects() == 0 && len(slices.Collect(s.Members())) <= 1 {
		return nil, fmt.Errorf("there is no manifest in %s", strings.Join(f.manifests, ", "))
	}
	return &opened{Snapshot: s, revision: s.Revision(), asOf: time.Now()}, nil
}
