import java.io.EOFException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.EnumSet;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The raw local file system, where each metadata operation waits at a latency server first (see
 * benchmarks/workloads/latency.py). What the raw file system does inside one operation waits once: a recursive delete,
 * or a mkdirs of several folders, is one operation, as it is on HDFS.
 */
public final class DelayingFileSystem extends FilterFileSystem {
  /** The configuration's key for the server's socket. */
  public static final String ADDRESS = "benchmark.latency.address";

  private enum Kind { CREATE, OPEN, STAT, LIST, MKDIR, RENAME, UNLINK, RMDIR, SYNC }

  private static final Map<String, Queue<SocketChannel>> IDLE = new ConcurrentHashMap<>();
  private String address;
  private Queue<SocketChannel> idle;

  public DelayingFileSystem() {
    super(new RawLocalFileSystem());
  }

  @Override
  public void initialize(URI name, Configuration configuration) throws IOException {
    address = configuration.get(ADDRESS);
    idle = IDLE.computeIfAbsent(address, unused -> new ConcurrentLinkedQueue<>());
    super.initialize(name, configuration);
  }

  private void delay(Kind kind) throws IOException {
    SocketChannel channel = idle.poll();
    if (channel == null) {
      channel = SocketChannel.open(UnixDomainSocketAddress.of(address));
    }
    channel.write(ByteBuffer.wrap(new byte[] {(byte) kind.ordinal()}));
    if (channel.read(ByteBuffer.allocate(1)) != 1) {
      throw new EOFException("the latency server at " + address + " has gone");
    }
    idle.offer(channel);
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    delay(Kind.OPEN);
    return super.open(path, bufferSize);
  }

  @Override
  public FutureDataInputStreamBuilder openFile(Path path) throws IOException {
    delay(Kind.OPEN);
    return super.openFile(path);
  }

  @Override
  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
      short replication, long blockSize, Progressable progress) throws IOException {
    delay(Kind.CREATE);
    return super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStream create(Path path, FsPermission permission, EnumSet<CreateFlag> flags, int bufferSize,
      short replication, long blockSize, Progressable progress, Options.ChecksumOpt checksum) throws IOException {
    delay(Kind.CREATE);
    return super.create(path, permission, flags, bufferSize, replication, blockSize, progress, checksum);
  }

  @Override
  public FSDataOutputStream createNonRecursive(Path path, FsPermission permission, EnumSet<CreateFlag> flags,
      int bufferSize, short replication, long blockSize, Progressable progress) throws IOException {
    delay(Kind.CREATE);
    return super.createNonRecursive(path, permission, flags, bufferSize, replication, blockSize, progress);
  }

  @Override
  public FSDataOutputStreamBuilder createFile(Path path) {
    try {
      delay(Kind.CREATE);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return super.createFile(path);
  }

  @Override
  public boolean rename(Path source, Path target) throws IOException {
    delay(Kind.RENAME);
    return super.rename(source, target);
  }

  @Override
  protected void rename(Path source, Path target, Options.Rename... options) throws IOException {
    delay(Kind.RENAME);
    super.rename(source, target, options);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    delay(recursive ? Kind.RMDIR : Kind.UNLINK);
    return super.delete(path, recursive);
  }

  @Override
  public boolean mkdirs(Path path) throws IOException {
    delay(Kind.MKDIR);
    return super.mkdirs(path);
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    delay(Kind.MKDIR);
    return super.mkdirs(path, permission);
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    delay(Kind.STAT);
    return super.getFileStatus(path);
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    delay(Kind.LIST);
    return super.listStatus(path);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    delay(Kind.LIST);
    return super.listStatusIterator(path);
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path) throws IOException {
    delay(Kind.LIST);
    return super.listLocatedStatus(path);
  }
}
