package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apidiscovery "k8s.io/api/apidiscovery/v2"
)

// completion asks the query API what there is; a shell that waits for it is
// worse than one that completes nothing.
const completionTimeout = 3 * time.Second

const asDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// completed answers a shell with what ask finds, and with nothing on trouble.
func (f *askFlags) completed(cmd *cobra.Command, ask func(context.Context, *asker) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	a, err := f.asker()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, err := ask(ctx, a)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}

// completeResources completes the first argument with the resources served.
func (f *askFlags) completeResources(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.completed(cmd, func(ctx context.Context, a *asker) ([]string, error) { return a.resources(ctx) })
}

// completeKinds completes a flag's resources, whatever the arguments are.
func (f *askFlags) completeKinds(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return f.completeResources(cmd, nil, typed)
}

func (f *askFlags) completeMembers(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.completed(cmd, func(ctx context.Context, a *asker) ([]string, error) { return a.members(ctx) })
}

func (f *askFlags) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.completed(cmd, func(ctx context.Context, a *asker) ([]string, error) {
		return a.names(ctx, a.target+"/api/v1/namespaces", nil)
	})
}

// offered is a resource that the query API serves.
type offered struct {
	group, version, plural string
	names                  []string // singular and short ones
}

func (o offered) String() string {
	if o.group == "" {
		return o.plural
	}
	return o.plural + "." + o.group
}

// offers returns the resources that are served and can be listed.
func (a *asker) offers(ctx context.Context) ([]offered, error) {
	var out []offered
	for _, path := range []string{"/api", "/apis"} {
		body, err := a.get(ctx, a.target+path, nil, asDiscovery)
		if err != nil {
			return nil, err
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					if slices.Contains(r.Verbs, "list") {
						out = append(out, offered{g.Name, v.Version, r.Resource, append(r.ShortNames, r.SingularResource)})
					}
				}
			}
		}
	}
	return out, nil
}

// resources returns the resources that are served, as <plural>[.<group>].
func (a *asker) resources(ctx context.Context) ([]string, error) {
	offers, err := a.offers(ctx)
	var out []string
	for _, o := range offers {
		out = append(out, o.String())
	}
	return out, err
}

// path returns where the objects of a resource are listed that is called as
// kubectl calls it.
func (a *asker) path(ctx context.Context, name, namespace string) (string, error) {
	offers, err := a.offers(ctx)
	if err != nil {
		return "", err
	}
	for _, o := range offers {
		if o.String() != name && o.plural != name && !slices.Contains(o.names, name) {
			continue
		}
		path := a.target + "/apis/" + o.group + "/" + o.version
		if o.group == "" {
			path = a.target + "/api/" + o.version
		}
		if namespace != "" {
			path += "/namespaces/" + url.PathEscape(namespace)
		}
		return path + "/" + o.plural, nil
	}
	return "", fmt.Errorf("no resource is called %q", name)
}

// names returns the names of the objects of a list.
func (a *asker) names(ctx context.Context, path string, query url.Values) ([]string, error) {
	body, err := a.get(ctx, path, query, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	var out []string
	for _, i := range list.Items {
		out = append(out, i.Metadata.Name)
	}
	return out, nil
}
