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
)

// sourceFlags say where the objects come from that policies and queries are
// evaluated on: manifests, a saved snapshot, or clusters.
type sourceFlags struct {
	manifests []string
	member    string
	snapshot  string
	hub       bool
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
}

// open reads the fleet. kinds are those that will be read, nil for all: no others
// are followed where the flags leave that open.
func (f *sourceFlags) open(ctx context.Context, fs *pflag.FlagSet, kinds []aggregate.Kind, in io.Reader, stderr io.Writer) (*opened, error) {
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
		saved, err := clusterinformers.LoadSnapshot(f.snapshot, 0)
		if err != nil {
			return nil, err
		}
		return &opened{saved.Index.Snapshot(), saved.Revision, saved.Taken}, nil
	case live:
		return f.follow(ctx, fs, kinds, stderr)
	}
	return f.read(kinds, in)
}

// read reads manifests.
func (f *sourceFlags) read(kinds []aggregate.Kind, in io.Reader) (*opened, error) {
	offline, err := clusterinformers.NewOffline(clusterinformers.OfflineOptions{DefaultMember: f.member})
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
			err = offline.Add("standard input", in, member)
		} else {
			err = offline.AddPath(path, member)
		}
		if err != nil {
			return nil, err
		}
	}
	index, err := offline.Index(kinds)
	if err != nil {
		return nil, err
	}
	s := index.Snapshot()
	return &opened{s, s.Revision(), time.Now()}, nil
}

// follow follows clusters until each has synced or been given up on.
func (f *sourceFlags) follow(ctx context.Context, fs *pflag.FlagSet, kinds []aggregate.Kind, stderr io.Writer) (*opened, error) {
	cfg, err := f.live.load(fs, func(c *Config) {
		if f.hub && c.Sources.ClusterAPI == nil {
			c.Sources.ClusterAPI = &ClusterAPIConfig{}
		}
		if len(c.Kinds) == 0 {
			for _, kind := range kinds {
				c.Kinds = append(c.Kinds, clusterinformers.KindRule{Kind: string(kind)})
			}
		}
		if !fs.Changed("give-up-after") {
			c.GiveUpAfter = localGiveUp
		}
		if !fs.Changed("log-level") {
			c.Log.Level = "warn"
		}
		c.KeepSecretValues = false
	})
	if err != nil {
		return nil, err
	}
	log, err := newLogger(stderr, cfg.Log)
	if err != nil {
		return nil, err
	}
	fleet, err := newFleet(cfg, time.Now(), log, nil)
	if err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	manager := startPart(ctx, fleet.manager.Run, failed)
	err = fleet.waitReady(ctx, failed)
	s, now := fleet.index.Snapshot(), time.Now() // before the members are let go
	if err := errors.Join(err, manager.stop()); err != nil {
		return nil, err
	}
	if len(slices.Collect(s.Members())) == 0 {
		return nil, errors.New("there is no member to look at")
	}
	return &opened{s, s.Revision(), now}, nil
}

// warnIncomplete says which members are not known in full.
func (o *opened) warnIncomplete(w io.Writer) error {
	for m := range o.Members() {
		var incomplete []string
		for s := range o.Scopes(m.Name) {
			if !s.Status.State.Complete() {
				incomplete = append(incomplete, fmt.Sprintf("%s is %s", s.Kind, s.Status.State))
			}
		}
		if n := len(incomplete); n > 3 {
			incomplete = append(incomplete[:3], fmt.Sprintf("and %d more", n-3))
		}
		if len(incomplete) > 0 {
			if _, err := fmt.Fprintf(w, "member %s: %s\n", m.Name, strings.Join(incomplete, ", ")); err != nil {
				return err
			}
		}
	}
	return nil
}
