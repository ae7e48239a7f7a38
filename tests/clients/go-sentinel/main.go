// What an application does through go-redis's fail-over client while the role of primary changes.
//
// Starts two servers (SERVER) and three sentinels (SENTINEL) of its own.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	name     = "mine"
	patience = 60 * time.Second
)

var (
	ctx    = context.Background()
	folder string
	// By port.
	processes = map[string]*exec.Cmd{}
)

func cleanUp() {
	for _, process := range processes {
		process.Process.Kill()
		process.Wait()
	}
	os.RemoveAll(folder)
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	cleanUp()
	os.Exit(1)
}

func check(name string, given, expected any) {
	if !reflect.DeepEqual(given, expected) {
		fail(fmt.Sprintf("%s: %#v is not %#v", name, given, expected))
	}
	fmt.Println("ok", name)
}

func must[T any](value T, err error) T {
	if err != nil {
		fail(err.Error())
	}
	return value
}

func eventually(name string, isSo func() bool) {
	for deadline := time.Now().Add(patience); !isSo(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			fail("never: " + name)
		}
	}
	fmt.Println("ok", name)
}

func freePort() string {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return must(port, err)
}

// start starts a program with a file of these lines, and waits until it answers.
func start(command, name string, lines []string, arguments ...string) string {
	port := freePort()
	path := filepath.Join(folder, name+".conf")
	all := append([]string{"port " + port, "bind 127.0.0.1", "dir " + folder}, lines...)
	if err := os.WriteFile(path, []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
		fail(err.Error())
	}
	words := append(append(strings.Fields(command), path), arguments...)
	process := exec.Command(words[0], words[1:]...)
	if err := process.Start(); err != nil {
		fail(err.Error())
	}
	processes[port] = process
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer client.Close()
	eventually(name+" listens", func() bool { return client.Ping(ctx).Err() == nil })
	return port
}

func main() {
	folder = must(os.MkdirTemp("", "go-sentinel"))
	server, sentinel := os.Getenv("SERVER"), os.Getenv("SENTINEL")
	common := []string{"save ''", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1"}
	first := start(server, "first", common)
	second := start(server, "second", append(common, "replicaof 127.0.0.1 "+first))
	watched := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s 2", name, first),
		fmt.Sprintf("sentinel down-after-milliseconds %s 1000", name),
		fmt.Sprintf("sentinel failover-timeout %s 10000", name),
	}
	var addresses []string
	var sentinels []*redis.SentinelClient
	for number := 0; number < 3; number++ {
		port := start(sentinel, fmt.Sprintf("sentinel%d", number), watched, "--sentinel")
		addresses = append(addresses, "127.0.0.1:"+port)
		sentinels = append(sentinels, redis.NewSentinelClient(&redis.Options{Addr: "127.0.0.1:" + port}))
	}
	eventually("all know each other", func() bool {
		for _, one := range sentinels {
			said, err := one.Master(ctx, name).Result()
			if err != nil || said["num-other-sentinels"] != "2" || said["num-slaves"] != "1" {
				return false
			}
		}
		return true
	})
	primaryIs := func(port string) func() bool {
		return func() bool {
			address, err := sentinels[0].GetMasterAddrByName(ctx, name).Result()
			return err == nil && address[1] == port
		}
	}
	options := redis.FailoverOptions{MasterName: name, SentinelAddrs: addresses}
	primary := redis.NewFailoverClient(&options)
	readers := options
	readers.ReplicaOnly = true
	replica := redis.NewFailoverClient(&readers)
	// Reads go to any of the servers, writes to the primary.
	spread := options
	spread.RouteRandomly = true
	cluster := redis.NewFailoverClusterClient(&spread)

	check("a write", must(primary.Set(ctx, "k", "first", 0).Result()), "OK")
	check("it is confirmed", must(primary.Wait(ctx, 1, 9*time.Second).Result()), int64(1))
	check("the replica has it", must(replica.Get(ctx, "k").Result()), "first")
	check("a read from any", must(cluster.Get(ctx, "k").Result()), "first")
	check("a write through the same", must(cluster.Set(ctx, "c", "1", 0).Result()), "OK")
	news := primary.Subscribe(ctx, "news")
	must(news.Receive(ctx))
	messages := news.Channel()

	check("a fail-over is asked for", sentinels[0].Failover(ctx, name).Err(), nil)
	eventually("the role changes", primaryIs(second))
	direct := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + second})
	// Until it is told, the old primary takes writes, which are lost then.
	eventually("the same client writes to the new primary", func() bool {
		err := primary.Set(ctx, "k", "second", 0).Err()
		return err == nil && direct.Get(ctx, "k").Val() == "second"
	})
	eventually("a subscriber is there again", func() bool {
		return direct.Publish(ctx, "news", "hello").Val() == 1
	})
	check("it hears", (<-messages).Payload, "hello")
	// Not by the client for replicas, which asks the primary while it knows of none.
	old := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + first})
	eventually("the old primary follows", func() bool { return old.Get(ctx, "k").Val() == "second" })
	check("a replica has it, too", must(replica.Get(ctx, "k").Result()), "second")

	processes[second].Process.Kill()
	eventually("another one takes over", primaryIs(first))
	eventually("the same client goes on", func() bool { return primary.Incr(ctx, "counter").Err() == nil })
	check("nothing is lost", must(primary.Get(ctx, "k").Result()), "second")
	eventually("the one that spreads goes on", func() bool {
		return cluster.Set(ctx, "c", "2", 0).Err() == nil && primary.Get(ctx, "c").Val() == "2"
	})
	cleanUp()
}
