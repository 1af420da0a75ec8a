package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// askFlags say which query API is asked, and how the answer is printed.
type askFlags struct {
	kubeconfig string
	context    string
	output     string
}

func (f *askFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that leads to the query API, as federator kubeconfig writes it (default KUBECONFIG, else ~/.kube/config, else that of a server without a hub)")
	fs.StringVar(&f.context, "context", "", "`context` in it (default \"fleet\", else the current one)")
	fs.StringVarP(&f.output, "output", "o", "table", "table, wide, json or yaml")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)))
}

func (f *askFlags) checkOutput() error {
	switch f.output {
	case "table", "wide", "json", "yaml":
		return nil
	}
	return fmt.Errorf("--output: %q is not table, wide, json or yaml", f.output)
}

// asker asks one query API.
type asker struct {
	client *http.Client
	root   string // https://<address>
	target string // /fleet or /members/<namespace>/<name>
}

func (f *askFlags) asker() (*asker, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	return newAsker(config)
}

func newAsker(config *rest.Config) (*asker, error) {
	config.UserAgent = "federator/" + version()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	host := config.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return nil, err
	}
	target := strings.TrimSuffix(u.Path, "/")
	if target == "/flat" { // our own commands know of members, and speak of objects by the names that these give
		target = "/fleet"
	}
	return &asker{client: client, root: u.Scheme + "://" + u.Host, target: target}, nil
}

// config finds the configuration that leads to the query API.
func (f *askFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	file, err := rules.Load()
	if err != nil {
		return nil, err
	}
	name := f.context
	if name == "" && file.Contexts[localContext] != nil {
		name = localContext
	}
	if name == "" && f.kubeconfig == "" {
		// Nobody has said where: a server on this machine comes before
		// somebody's current cluster, which is no query API.
		local, err := localKubeconfig("")
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(local); err == nil {
			return clientcmd.BuildConfigFromFlags("", local)
		}
		return nil, fmt.Errorf("no query API is found: there is no context %q in %s, and no kubeconfig of a server on this machine at %s; "+
			"start one with `federator serve --contexts …`, have federator kubeconfig write a context, or name one with --context or --kubeconfig",
			localContext, strings.Join(rules.GetLoadingPrecedence(), ", "), local)
	}
	return clientcmd.NewNonInteractiveClientConfig(*file, name, nil, rules).ClientConfig()
}

// maxAnswer bounds what an answer may take.
const maxAnswer = 256 << 20

// get asks for a path below the root. A Status that the server answers with is
// the error.
func (a *asker) get(ctx context.Context, path string, query url.Values, accept string) ([]byte, error) {
	answer, err := a.open(ctx, path, query, accept)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	return readAnswer(path, answer)
}

func readAnswer(path string, answer io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(answer, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxAnswer { // half an answer would be taken for a whole one
		return nil, fmt.Errorf("%s: the answer is larger than %d bytes", path, maxAnswer)
	}
	return body, nil
}

// open is get for an answer that is read as it comes.
func (a *asker) open(ctx context.Context, path string, query url.Values, accept string) (io.ReadCloser, error) {
	target := a.root + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	body, err := readAnswer(path, resp.Body)
	if err != nil {
		return nil, err
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	return nil, fmt.Errorf("%s: %s", path, resp.Status)
}

// print asks and prints the answer as the flags want it.
func (f *askFlags) print(cmd *cobra.Command, path string, query url.Values) error {
	a, err := f.asker()
	if err != nil {
		return err
	}
	accept := "application/json"
	if f.output == "table" || f.output == "wide" {
		accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	}
	body, err := a.get(cmd.Context(), path, query, accept)
	if err != nil {
		return err
	}
	return f.write(cmd.OutOrStdout(), body)
}

func (f *askFlags) write(w io.Writer, body []byte) error {
	switch f.output {
	case "json":
		_, err := w.Write(append(body, '\n'))
		return err
	case "yaml":
		out, err := yaml.JSONToYAML(body)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		return fmt.Errorf("the answer is no table: %w", err)
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: f.output == "wide"}).PrintObj(&table, w)
}

// flagged adds the flags of a query that were given.
func flagged(fs *pflag.FlagSet, query url.Values, names map[string]string) {
	for flag, parameter := range names {
		if f := fs.Lookup(flag); f != nil && f.Changed {
			query.Set(parameter, f.Value.String())
		}
	}
}
