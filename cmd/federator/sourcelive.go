package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

var errSettle = errors.New("clusters have not settled in time")

// follow follows clusters until each has synced or been given up on, or until the
// time is up: what is missing then is an incomplete scope.
func (f *sourceFlags) follow(ctx context.Context, fs *pflag.FlagSet, want wanted, stderr io.Writer) (*opened, error) {
	cfg, err := f.live.load(fs, func(c *Config) { f.local(c, fs, want) })
	if err != nil {
		return nil, err
	}
	log, err := newLogger(stderr, cfg.Log)
	if err != nil {
		return nil, err
	}
	fleet, err := newFleet(cfg, aggregate.Block(1), log, nil)
	if err != nil {
		return nil, err
	}
	fleet.manager.Want(want.names())
	failed := make(chan error, 1)
	manager := startPart(ctx, fleet.manager.Run, failed)
	err = f.settle(ctx, fleet, failed)
	// Before the members are let go.
	o := &opened{Snapshot: fleet.index.Snapshot(), asOf: time.Now(), followed: map[string]clusterinformers.MemberStatus{}}
	o.revision = o.Revision()
	for _, m := range fleet.manager.Members() {
		o.followed[m.Name] = m
	}
	if err := errors.Join(err, manager.stop()); err != nil {
		return nil, err
	}
	if !o.reached() {
		return nil, o.nobody()
	}
	return o, nil
}

// local fits a configuration to somebody who waits for one answer.
func (f *sourceFlags) local(c *Config, fs *pflag.FlagSet, want wanted) {
	if f.hub && c.Sources.ClusterAPI == nil {
		c.Sources.ClusterAPI = &ClusterAPIConfig{}
	}
	if len(c.Kinds) == 0 && !want.every {
		for _, kind := range want.names() {
			c.Kinds = append(c.Kinds, clusterinformers.KindRule{Kind: string(kind)})
		}
	}
	for _, k := range want.kinds {
		held := slices.ContainsFunc(c.Held, func(h clusterinformers.HeldVersion) bool { return h.Kind == k.Kind })
		if k.Version != "" && !held {
			c.Held = append(c.Held, clusterinformers.HeldVersion{Kind: k.Kind, Version: k.Version})
		}
	}
	if !fs.Changed("give-up-after") {
		c.GiveUpAfter = localGiveUp
	}
	if !fs.Changed("log-level") {
		c.Log.Level = "warn"
	}
	c.KeepSecretValues = false
}

// settle waits until the fleet is ready, for as long as the flags allow.
func (f *sourceFlags) settle(ctx context.Context, fleet *fleet, failed <-chan error) error {
	if f.timeout == 0 {
		return fleet.waitReady(ctx, failed)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errSettle)
	defer cancel()
	err := fleet.waitReady(ctx, failed)
	if errors.Is(err, errSettle) {
		return nil
	}
	return err
}

// reached reports whether any member has ever been reached.
func (o *opened) reached() bool {
	for m := range o.Members() {
		if m.Version != "" {
			return true
		}
	}
	return false
}

// why says why a scope is what it is: one of a member that was never reached has
// nothing to say for itself.
func (o *opened) why(member string, kind aggregate.Kind) string {
	if info, there := o.Scope(member, kind); there {
		return info.Status.Reason
	}
	if m, ok := o.followed[member]; ok && m.State != connection.Connected {
		return because(string(m.Reason), m.Message)
	}
	return ""
}

// nobody says why there is no member to look at.
func (o *opened) nobody() error {
	text := "there is no member to look at"
	for _, name := range slices.Sorted(maps.Keys(o.followed)) {
		m := o.followed[name]
		text += fmt.Sprintf("\nmember %s is %s", name, because(string(m.State), cmp.Or(m.Message, string(m.Reason))))
	}
	return errors.New(text)
}

// heard returns when a member last said anything of a kind, the zero time when
// that is not known.
func (o *opened) heard(member string, kind aggregate.Kind) time.Time {
	for _, s := range o.followed[member].Details {
		if s.Kind == kind && s.Heard != nil {
			return *s.Heard
		}
	}
	return time.Time{}
}

// maxIncomplete is how many scopes of a member are named.
const maxIncomplete = 3

// warnIncomplete says which members are not known in full, as far as is wanted, and
// why.
func (o *opened) warnIncomplete(w io.Writer, want wanted) error {
	names := want.names()
	for m := range o.Members() {
		scopes := map[aggregate.Kind]aggregate.Status{}
		for _, kind := range names {
			info, _ := o.Scope(m.Name, kind)
			scopes[kind] = aggregate.Status{State: info.Status.State, Reason: o.why(m.Name, kind)}
		}
		if want.every {
			for s := range o.Scopes(m.Name) {
				scopes[s.Kind] = s.Status
			}
		}
		if text := o.incomplete(m.Name, scopes); text != "" {
			if _, err := fmt.Fprintf(w, "member %s: %s\n", m.Name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// incomplete says what of some scopes of a member is not known in full, "" when
// all of it is.
func (o *opened) incomplete(member string, scopes map[aggregate.Kind]aggregate.Status) string {
	var list []string
	for kind, status := range scopes {
		if !status.State.Complete() {
			list = append(list, because(fmt.Sprintf("%s is %s", kind, status.State), status.Reason))
		}
	}
	slices.Sort(list)
	if n := len(list); n > maxIncomplete {
		list = append(list[:maxIncomplete], fmt.Sprintf("and %d more", n-maxIncomplete))
	}
	if m, ok := o.followed[member]; ok && m.State != connection.Connected && (len(list) > 0 || len(scopes) == 0) {
		list = append([]string{because(string(m.State), cmp.Or(m.Message, m.LastError))}, list...)
	}
	return printable(strings.Join(list, ", "))
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}
