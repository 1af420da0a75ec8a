package config

import (
	"errors"
	"fmt"
	"net/url"

	"federator.dev/federator/pkg/notify"
)

// Notify says who is told of what happens to corrections.
type Notify struct {
	Origin    string     `yaml:"origin" doc:"Source of the events, a URI reference: name the hub in it if a receiver hears of several."`
	Receivers []Receiver `yaml:"receivers" doc:"Receivers of the events, with name, url (https, or http on this machine), keyFile and optionally caFile.\nkeyFile has the secret that events are signed with, 16 bytes or more, or whsec_ and Base64, as receivers of Standard Webhooks take it; several, one per line, allow rotation.\ncaFile has the certificates (PEM) that the receiver is verified with, instead of the system's; it is read at startup. What waits for a receiver, and what it was told, is in the ConfigMap federator-notices-<name> of policies.namespace."`
}

// Receiver is who is told.
type Receiver struct {
	Name    string `yaml:"name"`
	URL     string `yaml:"url"`
	KeyFile string `yaml:"keyFile"`
	CAFile  string `yaml:"caFile,omitempty"`
}

func defaultNotify() Notify { return Notify{Origin: "/federator"} }

func (c *Config) validateNotify(p *problems) {
	n := &c.Policies.Notify
	if u, err := url.Parse(n.Origin); n.Origin == "" || err != nil || u.String() != n.Origin {
		p.add("policies.notify.origin", "%q is not a URI reference", n.Origin)
	}
	if len(n.Receivers) > 0 && !c.Policies.Hub {
		p.add("policies.notify.receivers", "is set, but policies.hub is false: there is nothing to tell")
	}
	seen := map[string]bool{}
	for i := range n.Receivers {
		r := &n.Receivers[i]
		path := fmt.Sprintf("policies.notify.receivers[%d]", i)
		var field *notify.FieldError
		if err := (&notify.Receiver{Name: r.Name, URL: r.URL}).Validate(); errors.As(err, &field) {
			p.add(path+"."+field.Field, "%s", field.Problem)
		}
		if seen[r.Name] {
			p.add(path+".name", "another receiver is named %q", r.Name)
		}
		seen[r.Name] = true
		if r.KeyFile == "" {
			p.add(path+".keyFile", "is required")
		}
	}
}
