package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
)

// Flags say where the objects come from that policies and queries are evaluated on:
// manifests, a saved snapshot, or clusters.
type Flags struct {
	manifests []string
	member    string
	snapshot  string
	hub       bool
	asOf      string
	Timeout   time.Duration // of waiting for clusters; 0 is none
	live      config.Flags
	stdin     []byte // that Policies has read
	// AsGiven reads manifests as "gator test" does.
	AsGiven bool

	Version string // of federator
}

func (f *Flags) Register(fs *pflag.FlagSet) {
	fs.StringArrayVarP(&f.manifests, "filename", "f", nil, "`[MEMBER=]PATH` of manifests: files, directories, or - for standard input")
	fs.StringVar(&f.member, "member", "", "`<namespace>/<name>` of the member of manifests without an annotation (default manifests/default)")
	fs.StringVar(&f.snapshot, "snapshot", "", "`directory` written by federator snapshot")
	fs.BoolVar(&f.hub, "hub", false, "read the clusters of the Cluster API hub")
	f.live.Register(fs)
	fs.Lookup("give-up-after").Usage = "how long to wait for a member that has not synced (default 30s)"
	fs.Lookup("log-level").Usage = "debug, info, warn or error (default warn)"
}

// ErrAsOf is a time that cannot be used as it is written.
var ErrAsOf = errors.New("invalid time")

// RegisterAsOf registers the flag of the time as of which a fleet is judged.
func (f *Flags) RegisterAsOf(fs *pflag.FlagSet) {
	fs.StringVar(&f.asOf, "as-of", "", "`time` as of which policies and queries ask what has passed, in RFC 3339 (default now; of a snapshot when it was taken)")
}

// time returns the time as of which a fleet is judged that is of another.
func (f *Flags) time(taken time.Time) (time.Time, error) {
	if f.asOf == "" {
		return taken, nil
	}
	at, err := time.Parse(time.RFC3339, f.asOf)
	switch {
	case err != nil:
		return at, fmt.Errorf("%w: --as-of %q is not in RFC 3339, such as 2026-01-02T15:04:05Z", ErrAsOf, f.asOf)
	case at.Unix() < 1:
		return at, fmt.Errorf("%w: --as-of %s is before 1970", ErrAsOf, f.asOf)
	}
	return at, nil
}

func (f *Flags) isLive(fs *pflag.FlagSet) bool {
	return f.hub || fs.Changed("contexts") || fs.Changed("hub-kubeconfig") || fs.Changed("config")
}

// DefaultToStdin has the manifests be those of standard input if nothing is given, and it is
// no terminal.
func (f *Flags) DefaultToStdin(fs *pflag.FlagSet, in io.Reader) {
	if len(f.manifests) > 0 || f.snapshot != "" || f.isLive(fs) {
		return
	}
	if file, ok := in.(*os.File); ok {
		if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 {
			return
		}
	}
	f.manifests = []string{"-"}
}

// Open reads the fleet. Of clusters it reads the required kinds, unless the flags select
// others.
func (f *Flags) Open(ctx context.Context, fs *pflag.FlagSet, required Kinds, in io.Reader, stderr io.Writer) (*Fleet, error) {
	if _, err := f.time(time.Time{}); err != nil {
		return nil, err // before clusters are read
	}
	fleet, err := f.open(ctx, fs, required, in, stderr)
	if err == nil {
		fleet.AsOf, err = f.time(fleet.AsOf)
	}
	return fleet, err
}

func (f *Flags) open(ctx context.Context, fs *pflag.FlagSet, required Kinds, in io.Reader, stderr io.Writer) (*Fleet, error) {
	live := f.isLive(fs)
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
		return &Fleet{Snapshot: saved.Index.Snapshot(), SourceRevision: saved.Revision, AsOf: saved.Taken}, nil
	case live:
		return f.readClusters(ctx, fs, required, stderr)
	}
	return f.readManifests(required.names(), in)
}

// readManifests reads manifests.
func (f *Flags) readManifests(kinds []aggregate.Kind, in io.Reader) (*Fleet, error) {
	fleet, err := offline.New(offline.Options{DefaultMember: f.member, AsGiven: f.AsGiven})
	if err != nil {
		return nil, err
	}
	if f.stdin != nil {
		in = bytes.NewReader(f.stdin)
	}
	for _, arg := range f.manifests {
		member, path := f.memberOf(arg)
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
		return nil, fmt.Errorf("no manifest found in %s", strings.Join(f.manifests, ", "))
	}
	return &Fleet{Snapshot: s, SourceRevision: s.Revision(), AsOf: time.Now(), Manifests: fleet, AsGiven: f.AsGiven}, nil
}
