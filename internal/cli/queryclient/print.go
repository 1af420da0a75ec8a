package queryclient

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Print requests a path and prints the response in the format of the flags.
func (f *Flags) Print(cmd *cobra.Command, path string, query url.Values) error {
	a, err := f.Client()
	if err != nil {
		return err
	}
	accept := "application/json"
	if f.Output == "table" || f.Output == "wide" {
		accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	}
	body, err := a.Get(cmd.Context(), path, query, accept)
	if err != nil {
		return err
	}
	return f.Write(cmd.OutOrStdout(), body)
}

// Write prints a response in the format of the flags.
func (f *Flags) Write(w io.Writer, body []byte) error {
	switch f.Output {
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
		return fmt.Errorf("the response is not a table: %w", err)
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: f.Output == "wide"}).PrintObj(&table, w)
}
