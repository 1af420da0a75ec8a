package config

import (
	"fmt"
	"math"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/remediate"
)

// Corrections bounds what is written to members, whatever policies say. Those who write
// policies cannot change it.
type Corrections struct {
	Protected Protected `yaml:"protected" doc:"What is never written, in addition to RBAC, admission, CustomResourceDefinitions, APIServices, Namespaces, kube-system, federator's and Cluster API's own objects."`
	GitOps    GitOps    `yaml:"gitops" doc:"Which objects of GitOps controllers are trusted to say what they manage: that is not written."`
	DryRuns   DryRuns   `yaml:"dryRuns" doc:"How often members are asked what they would answer, for policies in mode DryRun: a read and a server-side dry run."`
	Bounds    Bounds    `yaml:"bounds" doc:"Bounds of all writes together. 0 bounds nothing."`

	MaxActions     int   `yaml:"maxActions" doc:"How many Actions there may be on the hub. With more, no corrections are written until a tenth of them has been deleted; see actionRetention."`
	MaxActionBytes int64 `yaml:"maxActionBytes" doc:"How many bytes the Actions on the hub may have together; as maxActions. At least 64 MiB."`
}

// GitOps says which objects of GitOps controllers are trusted.
type GitOps struct {
	Trusted []TrustedGitOps `yaml:"trusted" doc:"Rules with kind (Application.argoproj.io, Kustomization.kustomize.toolkit.fluxcd.io or HelmRelease.helm.toolkit.fluxcd.io) and patterns of the members, the namespaces and optionally the names\nof trusted objects; * stands for any text. What such an object lists in its status is not written, unless its cluster is not known; while a member's objects of the kind are not synced, nothing that they may list is. Users who may write such objects there decide what is not corrected."`
}

// TrustedGitOps is a rule: objects that are trusted.
type TrustedGitOps struct {
	Kind       string   `yaml:"kind"`
	Members    []string `yaml:"members"`
	Namespaces []string `yaml:"namespaces"`
	Names      []string `yaml:"names,omitempty"`
}

// Trust returns the rules.
func (g *GitOps) Trust() []hub.GitOpsTrust {
	out := make([]hub.GitOpsTrust, 0, len(g.Trusted))
	for _, t := range g.Trusted {
		out = append(out, hub.GitOpsTrust{Kind: aggregate.Kind(t.Kind), Members: t.Members, Namespaces: t.Namespaces, Names: t.Names})
	}
	return out
}

// DryRuns bound how often members are asked.
type DryRuns struct {
	PerSecond       float64 `yaml:"perSecond" doc:"Targets that all members together are asked about in a second."`
	MemberPerSecond float64 `yaml:"memberPerSecond" doc:"Targets that one member is asked about in a second."`
}

// Rates returns the rates.
func (d *DryRuns) Rates() remediate.DryRunRates {
	return remediate.DryRunRates{PerSecond: d.PerSecond, MemberPerSecond: d.MemberPerSecond}
}

// Bounds bound all writes together.
type Bounds struct {
	WritesPerSecond float64       `yaml:"writesPerSecond" doc:"Requests to write that are sent to all members in a second, on average; after a pause as many at once."`
	Members         int           `yaml:"members" doc:"Members that are written to at once."`
	MaxAway         float64       `yaml:"maxAway" doc:"Percentage of the members that may be out of reach or refused; while there are more, nothing is written."`
	Failures        int           `yaml:"failures" doc:"Corrections that may fail within failureWindow. With more, everything stops, by ConfigMap federator-stop, until a person resumes."`
	MaxFailed       float64       `yaml:"maxFailed" doc:"Percentage of the corrections that end within failureWindow, if those are at least 10, that may fail; as failures."`
	FailureWindow   time.Duration `yaml:"failureWindow" doc:"The time within which failures are counted."`
}

// Limits returns the bounds.
func (b *Bounds) Limits() remediate.Bounds {
	return remediate.Bounds{
		WritesPerSecond: b.WritesPerSecond, Members: b.Members, MaxAway: b.MaxAway, Failures: b.Failures, MaxFailed: b.MaxFailed, FailureWindow: b.FailureWindow,
	}
}

func defaultCorrections() Corrections {
	return Corrections{
		DryRuns: DryRuns{PerSecond: 100, MemberPerSecond: 20}, Bounds: Bounds{FailureWindow: 10 * time.Minute}, MaxActions: 200_000, MaxActionBytes: 1 << 30,
	}
}

// Protected is what is never written.
type Protected struct {
	Kinds      []string `yaml:"kinds" doc:"Patterns of kinds as kubectl writes them, such as Secret or *.cert-manager.io; * stands for any text."`
	Namespaces []string `yaml:"namespaces" doc:"Patterns of members' namespaces, such as *-system."`
}

// Protection returns what is never written.
func (c *Corrections) Protection() remediate.Protection {
	return remediate.Protection{Kinds: c.Protected.Kinds, Namespaces: c.Protected.Namespaces}
}

// minActionBytes is many times the size of the largest Action.
const minActionBytes = 64 << 20

func (c *Corrections) validate(p *problems, kept int) {
	if c.MaxActions <= kept {
		p.add("policies.corrections.maxActions", "is %d, must be above policies.actionsKept, %d", c.MaxActions, kept)
	}
	if c.MaxActionBytes < minActionBytes {
		p.add("policies.corrections.maxActionBytes", "is %d, must be at least %d", c.MaxActionBytes, minActionBytes)
	}
	protection := c.Protection()
	if err := protection.Validate(); err != nil {
		p.add("policies.corrections.protected", "%v", err)
	}
	for i, t := range c.GitOps.Trust() {
		if err := t.Validate(); err != nil {
			p.add(fmt.Sprintf("policies.corrections.gitops.trusted[%d]", i), "%v", err)
		}
	}
	for name, rate := range map[string]float64{"perSecond": c.DryRuns.PerSecond, "memberPerSecond": c.DryRuns.MemberPerSecond} {
		if !(rate > 0) || math.IsInf(rate, 0) {
			p.add("policies.corrections.dryRuns."+name, "is %v, must be above 0", rate)
		}
	}
	limits := c.Bounds.Limits()
	if err := limits.Validate(); err != nil {
		p.add("policies.corrections.bounds", "%v", err)
	}
}
