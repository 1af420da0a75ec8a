package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/cli/export"
	"federator.dev/federator/pkg/queryapi"
)

// exports exports a fleet of a million objects of 100 simulated members: the server and the command each in a process of
// its own.
func exports(ctx context.Context, b *bench) (rows []row, err error) {
	members, pods, nodes := 100, b.n(9_900), b.n(100)
	kubeconfig, stop, err := b.simfleet(ctx, "--members", strconv.Itoa(members), "--pods", strconv.Itoa(pods), "--nodes", strconv.Itoa(nodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	server, stopServer, err := b.exportServer(ctx, kubeconfig, members*pods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopServer()) }()
	for _, one := range []struct{ name, args string }{
		{"export/parquet", "-o parquet"},
		{"export/ndjson", "-o ndjson"},
		{"export/parquet_paths", "-o parquet --printer-columns=false --columns pods/phase=.status.phase,pods/node=.spec.nodeName,pods/images:list=.spec.containers.image"},
	} {
		got, err := b.exportOnce(ctx, server, members*(pods+nodes), one.args)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", one.name, err)
		}
		rows = append(rows, got.rows(one.name, members*(pods+nodes), members)...)
	}
	return rows, nil
}

// exported is what one export took.
type exported struct {
	client            figures
	server, serverCPU float64 // more bytes resident at most than before, and seconds
}

func (e exported) rows(name string, objects, members int) []row {
	note := fmt.Sprintf("%d objects, %d members, %.0f objects/s; %.1f CPU-s of the server, %.1f of the command; %.0f MB of files; goal 30 s for 1,000,000",
		objects, members, float64(objects)/e.client["seconds"], e.serverCPU, e.client["cpu"], e.client["bytes"]/1e6)
	return []row{
		lower(name, "s", e.client["seconds"], 0, note),
		lower(name+"_server_rss", "MB", e.server/1e6, 0, "more than before, at most; goal 200"),
		lower(name+"_client_rss", "MB", (e.client["peak"]-e.client["before"])/1e6, 0, fmt.Sprintf("more than the %.0f at its start; goal 200", e.client["before"]/1e6)),
	}
}

func (b *bench) exportOnce(ctx context.Context, server *os.Process, objects int, args string) (exported, error) {
	var e exported
	proc := fmt.Sprintf("/proc/%d", server.Pid)
	before, err := memoryStatus(proc)
	if err != nil {
		return e, err
	}
	if err := os.WriteFile(proc+"/clear_refs", []byte("5"), 0); err != nil { // the peak is that from here on
		return e, err
	}
	began, err := cpuOf(server.Pid)
	if err != nil {
		return e, err
	}
	dir, err := os.MkdirTemp(b.dir, "export-")
	if err != nil {
		return e, err
	}
	if err := os.Setenv("BENCH_EXPORT", args+" -d "+dir); err != nil {
		return e, err
	}
	if err := b.child(ctx, "export", &e.client, filepath.Join(b.dir, "export.kubeconfig"), strconv.Itoa(objects)); err != nil {
		return e, err
	}
	ended, err := cpuOf(server.Pid)
	if err != nil {
		return e, err
	}
	after, err := memoryStatus(proc)
	e.server, e.serverCPU = after["VmHWM"]-before["VmRSS"], ended-began
	return e, errors.Join(err, os.RemoveAll(dir))
}

// exportCommand runs the command as BENCH_EXPORT says, and checks that so many rows were written.
func exportCommand(ctx context.Context, kubeconfig string, objects int) (figures, error) {
	out := figures{}
	args := strings.Fields(os.Getenv("BENCH_EXPORT"))
	dir := args[len(args)-1]
	root := &cobra.Command{Use: "federator", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(export.Command("bench"))
	root.SetArgs(append([]string{"export", "pods", "nodes", "--kubeconfig", kubeconfig}, args...))
	root.SetErr(io.Discard)
	began := time.Now()
	cpu, err := accounted(out, "", func() error { return root.ExecuteContext(ctx) })
	if err != nil {
		return nil, err
	}
	out["cpu"], out["seconds"] = cpu, time.Since(began).Seconds()
	text, err := os.ReadFile(filepath.Join(dir, "export.json"))
	if err != nil {
		return nil, err
	}
	var manifest struct {
		Files []struct {
			Name string
			Rows int
		}
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, err
	}
	n := 0
	for _, f := range manifest.Files {
		info, err := os.Stat(filepath.Join(dir, f.Name))
		if err != nil {
			return nil, err
		}
		n += f.Rows
		out["bytes"] += float64(info.Size())
	}
	if n != objects {
		return nil, fmt.Errorf("%d rows, want %d", n, objects)
	}
	return out, nil
}

// exportServer starts the child process that serves the fleet, and writes a kubeconfig of it.
func (b *bench) exportServer(ctx context.Context, kubeconfig string, pods int) (*os.Process, func() error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-child", "export-server", "--", kubeconfig, strconv.Itoa(pods))
	cmd.Env = append(os.Environ(), "GOGC="+strconv.Itoa(gcPercent))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = b.out
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() error { return errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()) }
	var ready struct {
		Host, Token string
		CA          []byte
	}
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("export server: %w", err), stop())
	}
	text, err := kubeconfigOf(&rest.Config{Host: ready.Host + "/fleet", BearerToken: ready.Token, TLSClientConfig: rest.TLSClientConfig{CAData: ready.CA}})
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, "export.kubeconfig"), text, 0o600)
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return cmd.Process, stop, nil
}

// exportServer follows the members of a kubeconfig, and serves them without a hub once it holds so many pods.
func exportServer(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	f, err := follow(ctx, members, "Pod", "Node")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := errors.Join(f.synced(ctx, pods), f.trained(ctx)); err != nil {
		return nil, err
	}
	f.index.Recompress(ctx.Done())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server, err := queryapi.New(queryapi.Options{
		Index: f.index, Fleet: served{f.manager}, Listener: listener, Local: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	heap()
	debug.FreeOSMemory() // what the start has left
	err = json.NewEncoder(os.Stdout).Encode(map[string]any{"host": "https://" + listener.Addr().String(), "ca": server.CertificateAuthority(), "token": server.Token()})
	if err != nil {
		return nil, err
	}
	return nil, <-ended
}
