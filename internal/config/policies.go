package config

import (
	"regexp"
	"slices"
	"time"
)

// Policies says which policies are evaluated.
type Policies struct {
	Dirs     []string `yaml:"dirs" doc:"Directories of policies, read once at startup. FleetPolicies refer to them as the sources dir-1, dir-2 and so on."`
	Library  bool     `yaml:"library" doc:"Also load the policies that ship with federator."`
	Bindings string   `yaml:"bindings" doc:"File of bindings. A policy without a binding is evaluated everywhere."`

	Hub              bool              `yaml:"hub" doc:"Read FleetPolicies, which bind policies and configure enforcement, and PolicySources, which load policies from git, from the hub."`
	Namespace        string            `yaml:"namespace" doc:"Namespace of the hub with the Leases of the leader (federator) and of revisions (federator-revisions), and the ConfigMaps that stop actions."`
	SecretNamespaces []string          `yaml:"secretNamespaces" doc:"Namespaces of the hub whose Secrets PolicySources may refer to."`
	Signers          map[string]string `yaml:"signers" doc:"Users of the hub who own the keys that sign commits, by the key's fingerprint: SHA256:… of an SSH key, PGP:… of a PGP key, as status.activeCommit.signer of the PolicySource shows it.\nTheir Approvals of what they have signed do not count. Where a signer is not listed, one person more must approve."`
	AllowFile        bool              `yaml:"allowFile" doc:"Allow PolicySources with repositories on this machine, as file:// URLs."`

	Webhook Webhook `yaml:"webhook" doc:"Webhook for git hosts, so that pushes are fetched immediately."`

	Corrections Corrections `yaml:"corrections" doc:"Bounds of what is written to members, whatever policies say."`

	Notify Notify `yaml:"notify" doc:"Webhooks that are told of halts, Plans that wait, approvals, stops and rollbacks, by signed CloudEvents."`

	Reports        bool          `yaml:"reports" doc:"Write violations as OpenReports on the hub, one per member. Users who may read Reports there can read them, whatever access they have to members. The hub must have the CRDs of openreports.io."`
	ReportInterval time.Duration `yaml:"reportInterval" doc:"Minimum interval between writes of Reports."`

	ActionRetention time.Duration `yaml:"actionRetention" doc:"How long Actions are kept after they have ended. Their writes count towards limits for that long."`
	ActionsKept     int           `yaml:"actionsKept" doc:"How many of the newest Actions are always kept."`
}

// Webhook is where git hosts report pushes.
type Webhook struct {
	Listen     string `yaml:"listen" doc:"Address of POST /hooks/git, in plain HTTP: terminate TLS in a proxy. Empty: none."`
	SecretFile string `yaml:"secretFile" doc:"File with the secret that requests are signed with (GitHub, Gitea, Forgejo, GitLab), 16 bytes or more. Several secrets, one per line, allow rotation."`
}

// signerKey is the fingerprint of a key, as package policysource names it.
var signerKey = regexp.MustCompile(`^(SHA256:[A-Za-z0-9+/]{43}|PGP:[0-9A-F]{40,64})$`)

func (c *Config) validatePolicies(p *problems) {
	c.Policies.Corrections.validate(p, c.Policies.ActionsKept)
	c.validateNotify(p)
	switch hook := c.Policies.Webhook; {
	case hook.Listen == "" && hook.SecretFile != "":
		p.add("policies.webhook.secretFile", "is set, but policies.webhook.listen is not")
	case hook.Listen != "" && hook.SecretFile == "":
		p.add("policies.webhook.secretFile", "is required with policies.webhook.listen")
	case hook.Listen != "" && !c.Policies.Hub:
		p.add("policies.webhook.listen", "is set, but policies.hub is false: there are no PolicySources")
	}
	switch {
	case c.Policies.Hub && c.Policies.Bindings != "":
		p.add("policies.bindings", "is set, but policies.hub is true: FleetPolicies bind policies")
	case len(c.Policies.Dirs) == 0 && !c.Policies.Library && c.Policies.Bindings != "":
		p.add("policies.bindings", "is set, but policies.dirs is empty")
	}
	if c.Policies.Hub && !c.HasHub() {
		p.add("policies.hub", "is true, but there is no hub: see sources")
	}
	if c.Policies.Reports && !c.Policies.Hub {
		p.add("policies.reports", "is true, but policies.hub is false: there is no hub to write to")
	}
	if c.Policies.ReportInterval < time.Second {
		p.add("policies.reportInterval", "is %s, must be at least 1s", c.Policies.ReportInterval)
	}
	if c.Policies.Hub && c.Policies.Namespace == "" {
		p.add("policies.namespace", "must not be empty")
	}
	if c.Policies.ActionRetention < time.Hour {
		p.add("policies.actionRetention", "is %s, must be at least 1h", c.Policies.ActionRetention)
	}
	if c.Policies.ActionsKept < 0 {
		p.add("policies.actionsKept", "is %d, must not be negative", c.Policies.ActionsKept)
	}
	for key, user := range c.Policies.Signers {
		if !signerKey.MatchString(key) || user == "" {
			p.add("policies.signers", "%q: %q is not a fingerprint (SHA256:… or PGP:…) with the name of a user", key, user)
		}
	}
	if slices.Contains(c.Policies.Dirs, "") {
		p.add("policies.dirs", "a directory must not be empty")
	}
}
