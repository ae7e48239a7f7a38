import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import java.time.Duration;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.SubscriptionMode;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPooled;

/** Writes and reads keys through a Java client while the cluster changes: {@code Work jedis|lettuce|redisson}. */
public class Work {
  public static void main(String[] arguments) throws Exception {
    String name = arguments[0];
    boolean isSingle = System.getenv("ENDPOINT").equals("single");
    List<HostAndPort> seeds = new ArrayList<>();
    for (String seed : System.getenv("SEEDS").split(",")) {
      seeds.add(HostAndPort.from(seed));
    }
    BiConsumer<String, String> set;
    Function<String, String> get;
    if (name.equals("jedis") && isSingle) {
      JedisPooled client = new JedisPooled(seeds.get(0));
      set = client::set;
      get = client::get;
    } else if (name.equals("jedis")) {
      JedisCluster client = new JedisCluster(Set.copyOf(seeds));
      set = client::set;
      get = client::get;
    } else if (name.equals("redisson")) {
      RedissonClient client = Redisson.create(redisson(isSingle, seeds));
      set = (key, value) -> client.<String>getBucket(key, StringCodec.INSTANCE).set(value);
      get = key -> client.<String>getBucket(key, StringCodec.INSTANCE).get();
    } else if (isSingle) {
      RedisURI uri = RedisURI.create(seeds.get(0).getHost(), seeds.get(0).getPort());
      var commands = RedisClient.create(uri).connect().sync();
      set = commands::set;
      get = commands::get;
    } else {
      RedisClusterClient client =
          RedisClusterClient.create(
              seeds.stream()
                  .map(seed -> RedisURI.create(seed.getHost(), seed.getPort()))
                  .collect(Collectors.toList()));
      // What its documentation recommends for clusters that change, but that happens more than once in 30 seconds here.
      client.setOptions(
          ClusterClientOptions.builder()
              .topologyRefreshOptions(
                  ClusterTopologyRefreshOptions.builder()
                      .enableAllAdaptiveRefreshTriggers()
                      .adaptiveRefreshTriggersTimeout(Duration.ofMillis(100))
                      .build())
              .build());
      var commands = client.connect().sync();
      set = commands::set;
      get = commands::get;
    }
    long until = System.currentTimeMillis() + (long) (Double.parseDouble(System.getenv("SECONDS")) * 1000);
    AtomicInteger operations = new AtomicInteger();
    AtomicInteger errors = new AtomicInteger();
    AtomicInteger wrong = new AtomicInteger();
    List<String> told = java.util.Collections.synchronizedList(new ArrayList<>());
    List<Thread> workers = new ArrayList<>();
    for (int number = 0; number < 2; number++) {
      int worker = number;
      workers.add(
          new Thread(
              () -> {
                int done = 0;
                while (System.currentTimeMillis() < until) {
                  String key = name + ":" + worker + ":" + done % 500;
                  String value = Integer.toString(done);
                  try {
                    set.accept(key, value);
                    String found = get.apply(key);
                    if (!value.equals(found)) {
                      wrong.incrementAndGet();
                      told.add(key + " is " + found + ", not " + value);
                    }
                    done++;
                  } catch (RuntimeException error) {
                    errors.incrementAndGet();
                    told.add(LocalTime.now() + " " + error);
                  }
                }
                operations.addAndGet(done);
              }));
    }
    for (Thread worker : workers) {
      worker.start();
    }
    for (Thread worker : workers) {
      worker.join();
    }
    String texts = told.stream().limit(3).collect(Collectors.joining("; "));
    System.out.println("result " + operations + " " + errors + " " + wrong + " " + texts);
    System.exit(0);
  }

  private static Config redisson(boolean isSingle, List<HostAndPort> seeds) {
    Config config = new Config();
    if (isSingle) {
      config.useSingleServer().setAddress("redis://" + seeds.get(0));
      return config;
    }
    // By default it reads from replicas, which may not have what it has written yet.
    // It learns of changes by looking alone, every five seconds by default, and until then tries a request four times.
    // It tries all that with the node that it was sent to once, and knows no replicas if it has no use for them: a node
    // that was a primary for a second is one it can send nothing to.
    var servers =
        config
            .useClusterServers()
            .setReadMode(ReadMode.MASTER)
            .setSubscriptionMode(SubscriptionMode.SLAVE)
            .setScanInterval(500)
            .setRetryAttempts(10);
    seeds.forEach(seed -> servers.addNodeAddress("redis://" + seed));
    return config;
  }
}
