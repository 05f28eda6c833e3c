package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// hands is how many goroutines acquire the locks that hold is to hold.
const hands = 64

// modules are those of the peers, for their versions.
var modules = map[string]string{
	"redsync":     "github.com/go-redsync/redsync/v4",
	"rueidislock": "github.com/redis/rueidis",
}

type query struct {
	Op      string   `json:"op"`
	Name    string   `json:"name"`
	Names   []string `json:"names"`
	Prefix  string   `json:"prefix"`
	Count   int      `json:"count"`
	Seconds float64  `json:"seconds"`
	StartNs int64    `json:"start_ns"`
	EndNs   int64    `json:"end_ns"`
	HoldMs  int64    `json:"hold_ms"`
}

type report map[string]any

// A worker of the benchmark does with a peer's locks what a workload asks for: tests/bench/README.md has the protocol.
type worker struct {
	session session
	ttl     time.Duration
	held    []lock
}

// work answers the queries of standard input until its end, or does what a cold start is to do.
func work(arguments []string, begun int64) error {
	flags := flag.NewFlagSet("worker", flag.ExitOnError)
	ttlMs := flags.Int64("ttl-ms", 10_000, "for how long the server keeps a lock")
	cold := flags.Bool("cold", false, "acquire once, tell when, and end")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	subject := flags.Arg(0)
	open, known := peers[subject]
	if !known || flags.NArg() < 2 {
		return errors.New("a peer and its URLs are needed")
	}
	session, err := open(flags.Args()[1:])
	if err != nil {
		return err
	}
	w := &worker{session: session, ttl: time.Duration(*ttlMs) * time.Millisecond}
	answers := json.NewEncoder(os.Stdout)
	if *cold {
		return w.coldStart(answers, begun)
	}
	if err := answers.Encode(report{"ready": report{"version": version(modules[subject])}}); err != nil {
		return err
	}
	for queries := json.NewDecoder(os.Stdin); ; {
		var asked query
		if err := queries.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		said, err := w.perform(asked)
		if err != nil {
			said = report{"error": err.Error()}
		}
		if err := answers.Encode(said); err != nil {
			return err
		}
	}
}

func (w *worker) perform(asked query) (report, error) {
	switch asked.Op {
	case "pairs":
		return w.pairs(asked)
	case "allocations":
		return w.allocations(asked)
	case "acquire":
		return w.acquire(asked)
	case "release":
		return w.release()
	case "contend":
		return w.contend(asked)
	case "hold":
		return w.hold(asked)
	case "wait":
		return w.wait(asked), nil
	case "usage":
		return report{"cpu_ns": cpuNs()}, nil
	}
	return nil, errors.New("no such op: " + asked.Op)
}

func (w *worker) pairs(asked query) (report, error) {
	var all tally
	begun, cpu := nowNs(), cpuNs()
	end, most := begun+int64(asked.Seconds*1e9), asked.Count/len(asked.Names)
	err := each(len(asked.Names), func(i int) error {
		for done := 0; done < most || asked.Seconds > 0 && (done == 0 || nowNs() < end); done++ {
			since := nowNs()
			lock, err := w.take(asked.Names[i])
			if err != nil {
				return err
			}
			if err := lock.release(); err != nil {
				return err
			}
			all.addSince(since)
		}
		return nil
	})
	return all.report(nowNs()-begun, cpuNs()-cpu), err
}

func (w *worker) allocations(asked query) (report, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	said, err := w.pairs(asked)
	if err != nil {
		return nil, err
	}
	runtime.ReadMemStats(&after)
	return report{
		"count":       said["count"],
		"allocations": after.Mallocs - before.Mallocs,
		"bytes":       after.TotalAlloc - before.TotalAlloc,
		"counted":     "objects on Go's heap and their bytes",
	}, nil
}

func (w *worker) acquire(asked query) (report, error) {
	since := nowNs()
	lock, err := w.take(asked.Name)
	if err != nil {
		return nil, err
	}
	until := nowNs()
	w.held = append(w.held, lock)
	return report{"asked_ns": since, "held_ns": until}, nil
}

func (w *worker) release() (report, error) {
	last := len(w.held) - 1
	if last < 0 {
		return nil, errors.New("nothing is held")
	}
	lock := w.held[last]
	w.held = w.held[:last]
	since := nowNs()
	err := lock.release()
	return report{"asked_ns": since, "released_ns": nowNs()}, err
}

func (w *worker) contend(asked query) (report, error) {
	sleepUntil(asked.StartNs)
	cpu := cpuNs()
	var waits tally
	count, heldNs := 0, int64(0)
	for nowNs() < asked.EndNs {
		since := nowNs()
		lock, err := w.take(asked.Name)
		if err != nil {
			return nil, err
		}
		held := nowNs()
		waits.addSince(since)
		time.Sleep(time.Duration(asked.HoldMs) * time.Millisecond)
		if held < asked.EndNs {
			count++
			heldNs += nowNs() - held
		}
		if err := lock.release(); err != nil {
			return nil, err
		}
	}
	said := waits.report(asked.EndNs-asked.StartNs, cpuNs()-cpu)
	said["count"], said["held_ns"] = count, heldNs
	return said, nil
}

func (w *worker) hold(asked query) (report, error) {
	begun := nowNs()
	locks := make([]lock, asked.Count)
	err := each(hands, func(hand int) (err error) {
		for i := hand; i < len(locks) && err == nil; i += hands {
			locks[i], err = w.take(fmt.Sprint(asked.Prefix, i))
		}
		return err
	})
	w.held = append(w.held, locks...)
	return report{"held": len(w.held), "wall_ns": nowNs() - begun}, err
}

// wait never hears of its waiters again: the process is killed with them.
func (w *worker) wait(asked query) report {
	for _, name := range asked.Names {
		go func() {
			if _, err := w.take(name); err != nil {
				log.Print("a waiter gave up: ", err)
			}
		}()
	}
	return report{"waiting": len(asked.Names)}
}

func (w *worker) coldStart(answers *json.Encoder, begun int64) error {
	lock, err := w.take("bench:cold")
	if err != nil {
		return err
	}
	// There is nothing to import.
	said := report{"begun_ns": begun, "imported_ns": begun, "acquired_ns": nowNs(), "cpu_ns": cpuNs()}
	return errors.Join(answers.Encode(said), lock.release())
}

// take acquires a lock, however long that takes.
func (w *worker) take(name string) (lock, error) {
	lock := w.session(name, w.ttl, nil)
	won, err := lock.acquire()
	if err == nil && !won {
		err = errors.New(name + " was not acquired")
	}
	return lock, err
}

// each runs this n times, side by side; what goes wrong is told together.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = do(i) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return ""
}
